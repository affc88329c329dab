"""The pod of each manifest file, and what is reported of bad files."""

from typing import Any

import pytest

from services.sources.core.file_source import FileSource, Listing, ManifestFile
from shared.model.objects import Object
from shared.podspec.static_pod import InvalidPod


def make_pod(document: Any, path: str) -> Object:
    """A stand-in for the real defaulting: `name: x` is a pod, its uid its content."""
    if not isinstance(document, dict) or "name" not in document:
        raise InvalidPod("invalid pod: name is needed for the pod")
    uid = document.get("uid", f"{path}#{document}")
    return {"metadata": {"name": document["name"], "namespace": "default", "uid": uid}, "spec": document}


@pytest.fixture
def source() -> FileSource:
    return FileSource(make_pod)


def look(source: FileSource, *, full: bool = False, being_written: tuple[str, ...] = (), **files: str) -> Listing:
    return source.look(
        {
            name: ManifestFile(path=name, content=text.encode(), being_written=name in being_written)
            for name, text in files.items()
        },
        full=full,
    )


def names(listing: Listing) -> dict[str, str]:
    return {path: pod["metadata"]["name"] for path, pod in listing.pods.items()}


def test_files_give_their_pods_in_lexical_order(source: FileSource) -> None:
    assert list(names(look(source, b="name: two", a="name: one")).items()) == [("a", "one"), ("b", "two")]


@pytest.mark.parametrize("bad", ["name: [", "kind: Pod", "", "a: 1\n---\nb: 2"])
def test_the_old_pod_stays_however_often_a_bad_file_is_looked_at(source: FileSource, bad: str) -> None:
    look(source, a="name: one")
    for _ in range(3):
        assert names(look(source, full=True, a=bad)) == {"a": "one"}


def test_a_bad_file_is_reported_once_for_each_content(source: FileSource) -> None:
    assert [p.path for p in look(source, a="name: [").fresh] == ["a"]
    assert look(source, a="name: [").fresh == ()
    assert len(look(source, a="name: [").problems) == 1
    assert [p.path for p in look(source, a="name: [ ").fresh] == ["a"]
    assert look(source, a="name: one").problems == ()
    assert [p.path for p in look(source, a="name: [").fresh] == ["a"]


def test_a_problem_names_the_pod_that_keeps_running(source: FileSource) -> None:
    look(source, a="name: one")
    (problem,) = look(source, a="kind: Pod").problems
    assert problem.pod is not None
    assert problem.pod["metadata"]["name"] == "one"
    assert problem.reason == "invalid pod: name is needed for the pod"


def test_a_file_that_is_gone_takes_its_pod_and_its_problem_with_it(source: FileSource) -> None:
    look(source, a="name: one", b="name: [")
    listing = look(source)
    assert (listing.pods, listing.problems) == ({}, ())
    assert names(look(source, a="name: [")) == {}


def test_a_file_that_cannot_be_read_keeps_its_pod(source: FileSource) -> None:
    look(source, a="name: one")
    unreadable = {"a": ManifestFile(path="a", content=None, unreadable="cannot be read: Permission denied")}
    listing = source.look(unreadable, full=True)
    assert names(listing) == {"a": "one"}
    assert [p.reason for p in listing.fresh] == ["cannot be read: Permission denied"]
    assert source.look(unreadable, full=True).fresh == ()
    assert look(source, a="name: one").problems == ()


def test_the_last_file_with_a_pod_name_wins(source: FileSource) -> None:
    listing = look(source, a="name: same", b="name: same")
    assert names(listing) == {"b": "same"}
    assert [(p.path, "b has the same pod" in p.reason) for p in listing.fresh] == [("a", True)]
    assert look(source, a="name: same", b="name: same").fresh == ()
    assert names(look(source, a="name: same")) == {"a": "same"}


def test_the_last_file_with_a_uid_wins(source: FileSource) -> None:
    assert names(look(source, a="{name: one, uid: u}", b="{name: two, uid: u}")) == {"b": "two"}


def test_a_file_being_written_is_not_checked_until_its_writer_is_done(source: FileSource) -> None:
    look(source, a="name: one")
    listing = look(source, being_written=("a",), a="name: [half", b="name: two")
    assert (names(listing), listing.problems) == ({"a": "one", "b": "two"}, ())
    assert names(look(source, a="name: one", b="name: two")) == {"a": "one", "b": "two"}


def test_a_new_file_being_written_is_no_pod_yet(source: FileSource) -> None:
    assert names(look(source, being_written=("a",), a="name: one")) == {}
    assert names(look(source, a="name: one")) == {"a": "one"}


def test_a_file_held_open_without_a_change_is_taken_at_the_second_full_look(source: FileSource) -> None:
    assert names(look(source, full=True, being_written=("a",), a="name: one")) == {}
    assert names(look(source, being_written=("a",), a="name: one")) == {}
    assert names(look(source, full=True, being_written=("a",), a="name: one")) == {"a": "one"}


def test_a_file_that_grows_between_full_looks_is_not_taken(source: FileSource) -> None:
    look(source, full=True, being_written=("a",), a="name: o")
    assert names(look(source, full=True, being_written=("a",), a="name: on")) == {}


def test_the_pod_of_an_earlier_process_stays_while_its_file_is_broken(source: FileSource) -> None:
    source.remember("a", make_pod({"name": "old"}, "a"), "a")
    source.remember("gone", make_pod({"name": "gone"}, "gone"), "gone")
    assert names(look(source, a="name: [")) == {"a": "old"}
    assert names(look(source, a="name: new")) == {"a": "new"}


def uids(listing: Listing) -> list[str]:
    return [pod["metadata"]["uid"] for pod in listing.pods.values()]


class TestUID:
    """A pod of the same content keeps its UID, so that nothing restarts."""

    def test_of_a_manifest_moved_to_another_file(self, source: FileSource) -> None:
        first = uids(look(source, a="name: one"))
        assert uids(look(source, b="name: one")) == first
        assert uids(look(source, c="name: one")) == first
        assert source.origin("c") == "a"

    def test_of_a_manifest_that_is_in_two_files_for_a_while(self, source: FileSource) -> None:
        first = uids(look(source, b="name: one"))
        assert uids(look(source, a="name: one", b="name: one")) == first
        assert uids(look(source, a="name: one", b="name: one", c="name: one")) == first
        assert uids(look(source, a="name: one")) == first

    def test_of_a_moved_manifest_saved_again(self, source: FileSource) -> None:
        first = uids(look(source, a="name: one"))
        look(source, b="name: one")
        assert uids(look(source, b="name: one # as before")) == first

    def test_of_an_editor_that_renames_the_old_file_and_writes_a_new_one(self, source: FileSource) -> None:
        first = uids(look(source, a="name: one"))
        assert uids(look(source, a_old="name: one")) == first
        assert uids(look(source, a_old="name: one", a="")) == first
        assert uids(look(source, a_old="name: one", a="name: one")) == first
        assert uids(look(source, a="name: one")) == first

    def test_of_a_manifest_moved_while_sources_was_dead(self, source: FileSource) -> None:
        first = make_pod({"name": "one"}, "z")
        source.remember("a", first, "z")
        assert uids(look(source, b="name: one")) == [first["metadata"]["uid"]]
        assert source.origin("b") == "z"

    def test_but_not_of_one_that_was_changed_or_gone_meanwhile(self, source: FileSource) -> None:
        first = uids(look(source, a="{name: one, image: x}"))
        second = uids(look(source, b="{name: one, image: y}"))
        assert second != first
        look(source)
        assert uids(look(source, c="{name: one, image: y}")) != second

    def test_nor_where_the_manifest_names_its_own(self, source: FileSource) -> None:
        look(source, a="{name: one, uid: mine}")
        assert uids(look(source, b="{name: one, uid: other}")) == ["other"]

    def test_edited_and_edited_back_it_is_that_of_before(self, source: FileSource) -> None:
        first = uids(look(source, a="{name: one, image: x}"))
        look(source, a="{name: one, image: y}")
        assert uids(look(source, a="{name: one, image: x}")) == first


def test_a_pod_that_is_valid_at_its_own_path_alone_replaces_one_of_its_name() -> None:
    def only_below_b(document: Any, path: str) -> Object:
        if document.get("config_map") and path != "b":
            raise InvalidPod("static pods may not reference configmaps")
        return make_pod(document, path)

    source = FileSource(only_below_b)
    look(source, a="name: one")
    own = "{name: one, config_map: c}"
    for listing in (look(source, a="name: one", b=own), look(source, b=own)):
        assert names(listing) == {"b": "one"} and listing.pods["b"]["spec"]["config_map"] == "c"
