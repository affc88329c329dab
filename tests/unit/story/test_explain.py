"""`bulkhead explain` prints the stories of pods, and each file that it cannot read is one line."""

import json
import os
from pathlib import Path

import pytest

from services.podsync.adapters.story import StoryFiles
from services.podsync.core.pod.events import (
    PodDesired,
)
from shared.model.runtime import ContainerState
from tests.unit.story.stories import POD, explain, instance, killing, observed, started


@pytest.fixture
def root(tmp_path: Path) -> Path:
    book = StoryFiles(tmp_path / "bulkhead/podsync/stories", boot=1)
    book.add("u1", 1000.0, PodDesired(uid="u1", source="api", pod=POD))
    book.add("u1", 1001.0, observed(instance(0, ContainerState.EXITED, 2, "Error")))
    book.add("u1", 1002.0, started(1))
    book.close()
    return tmp_path


def test_explain_prints_the_story_and_why_by_name_by_namespace_and_by_uid(root: Path) -> None:
    for words in (["web"], ["shop/web"], ["web", "-n", "shop"], ["u1"]):
        result = explain(root, *words)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[0] == "shop/web (u1, from api)"
        assert "seen for the first time, from api" in result.stdout
        assert result.stdout.splitlines()[-1].endswith(
            "c, attempt 1: attempt 0 ended with exit code 2 (Error) after 3.0 s"
        )


def test_explain_as_json_has_every_line_with_its_sentence(root: Path) -> None:
    answer = json.loads(explain(root, "web", "-o", "json").stdout)
    assert (answer["name"], answer["complete"], len(answer["restarts"])) == ("web", True, 1)
    assert [line["says"] for line in answer["story"]][1] == "seen for the first time, from api"


@pytest.mark.parametrize("words", [["unknown"], ["web", "-n", "other"], ["other/web"]])
def test_explain_of_a_pod_it_does_not_know_is_one_line(root: Path, words: list[str]) -> None:
    result = explain(root, *words)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)


def test_explain_where_no_agent_was_names_the_remedy(tmp_path: Path) -> None:
    assert "--root-dir" in explain(tmp_path, "web").stderr


def test_a_line_cut_by_a_kill_and_lines_of_a_later_version_are_passed_over(root: Path) -> None:
    path = root / "bulkhead/podsync/stories/u1.jsonl"
    path.write_bytes(path.read_bytes() + b'{"at": 1, "what": "new kind", "x": 1}\n[1]\n{"at": 100, "wh')
    assert explain(root, "web").exit_code == 0


def test_a_static_pod_is_found_by_its_manifests_name(tmp_path: Path) -> None:
    book = StoryFiles(tmp_path / "bulkhead/podsync/stories")
    metadata = {"name": "web-node-a", "namespace": "default"}
    book.add("u2", 1.0, PodDesired(uid="u2", source="file", pod={"metadata": metadata, "spec": {}}))
    book.close()
    assert explain(tmp_path, "web").stdout.startswith("default/web-node-a (u2, from file)")


def test_a_story_that_was_cut_has_a_line_about_it(tmp_path: Path) -> None:
    book = StoryFiles(tmp_path / "bulkhead/podsync/stories")
    book.add("u1", 1.0, PodDesired(uid="u1", source="api", pod=POD))
    for number in range(1500):
        book.add("u1", float(number), killing("x" * 300 + str(number)))
    book.close()
    lines = explain(tmp_path, "web").stdout.splitlines()
    assert lines[1] == "earlier lines have made room for newer ones"
    assert lines[-1].endswith("1499")


@pytest.mark.long
@pytest.mark.parametrize(
    "line",
    [
        b'{"what": "life", "at": "soon", "boot": 1}',
        b'{"what": "life", "at": NaN, "boot": 1}',
        b'{"what": "life", "at": 1' + b"0" * 400 + b', "boot": 1}',
        b'{"what": "failed", "at": 1, "call": {"a b": 1}, "text": "x"}',
        b'{"what": "container", "at": 1, "container": "c", "state": "EXITED", "finished": 1' + b"0" * 400 + b"}",
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_that_podsync_did_not_write_is_no_traceback(root: Path, line: bytes, form: str) -> None:
    path = root / "bulkhead/podsync/stories/u1.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    result = explain(root, "web", "-o", form)
    assert (result.exit_code, result.exception) == (0, None)
    assert "seen for the first time" in result.stdout


def test_what_a_container_wrote_does_not_reach_the_terminal_as_commands(root: Path) -> None:
    book = StoryFiles(root / "bulkhead/podsync/stories")
    book.add("u1", 1003.0, killing("\x1b]0;mine\x07\n2026-11-21\u202e"))
    book.close()
    shown = explain(root, "web").stdout
    assert not set(shown) & {"\x1b", "\x07", "\u202e"}
    assert any("\\x1b]0;mine\\x07\\n2026-11-21\\u202e" in line for line in shown.splitlines())


def test_of_two_pods_of_one_name_the_other_is_named_with_its_namespace(root: Path) -> None:
    book = StoryFiles(root / "bulkhead/podsync/stories")
    metadata = {"name": "web", "namespace": "other"}
    book.add("u2", 2000.0, PodDesired(uid="u2", source="api", pod={"metadata": metadata, "spec": {}}))
    book.close()
    result = explain(root, "web")
    assert result.stdout.startswith("other/web")
    assert result.stderr == "note: there is shop/web as well: bulkhead explain u1\n"


def test_a_directory_that_may_not_be_read_is_reported_as_that(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refused)
    monkeypatch.setattr(os, "scandir", refused)
    result = explain(root, "web")
    assert (result.exit_code, "Permission denied" in result.stderr) == (1, True)


def test_a_place_where_no_story_can_be_kept_costs_the_story_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    book = StoryFiles(tmp_path / "file/stories")
    book.add("u1", 1.0, started(0))
    book.keep_newest(set())
    book.close()
    assert "has a gap" in caplog.text


def test_stories_are_for_root_alone(root: Path) -> None:
    (path,) = (root / "bulkhead/podsync/stories").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_stories_of_living_pods_stay_though_there_is_a_dot_in_the_uid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.podsync.adapters.story.MAX_OLD_STORIES", 0)
    book = StoryFiles(tmp_path)
    for name in ("a.b.jsonl", "a.b.1.jsonl", "c.jsonl", "d.1.jsonl"):
        (tmp_path / name).write_text("{}\n")
    book.keep_newest({"a.b"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.b.1.jsonl", "a.b.jsonl"]
