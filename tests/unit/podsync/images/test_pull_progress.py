"""Which manifests and layers belong to a pull, and how far it is."""

import json
from typing import Any

import pytest

from services.podsync.core.images.pull_progress import (
    MAX_LOOKS,
    Layer,
    PullProgress,
    advanced,
    identified,
    layers_of,
    manifests_of,
    missing,
    source_of,
)
from shared.cri.interface import Blob

BEGAN = 1000.0


def pull(image: str = "r.example/app:1", **fields: Any) -> PullProgress:
    return PullProgress(image=image, began=5.0, began_wall=BEGAN, **fields)


def manifest(digest: str, *layers: str, created_at: float = BEGAN + 1, size: int = 500) -> Blob:
    labels = {f"containerd.io/gc.ref.content.l.{number}": layer for number, layer in enumerate(layers)}
    return Blob(digest=digest, size=size, created_at=created_at, labels=labels)


def index(digest: str, *manifests: str) -> Blob:
    labels = {f"containerd.io/gc.ref.content.m.{number}": one for number, one in enumerate(manifests)}
    return Blob(digest=digest, size=900, created_at=BEGAN, labels=labels)


@pytest.mark.parametrize(
    ("image", "source"),
    [
        ("busybox:1", ("docker.io", "library/busybox")),
        ("127.0.0.1:5000/team/app:1", ("127.0.0.1", "team/app")),
        ("r.example/app@sha256:1f", ("r.example", "app")),
    ],
)
def test_the_source_is_what_the_store_labels_blobs_with(image: str, source: tuple[str, str]) -> None:
    assert source_of(image) == source


def test_a_pull_by_tag_has_the_manifest_that_was_created_since_it_began() -> None:
    blobs = [manifest("old", "a", created_at=BEGAN - 60), manifest("new", "b"), index("index", "old", "new")]
    assert manifests_of(pull(), blobs, fetched=["a"]) == {"new"}


def test_a_pull_that_goes_on_has_the_manifest_of_a_layer_that_is_being_fetched() -> None:
    blobs = [manifest("one", "a", created_at=1.0), manifest("two", "b", created_at=1.0)]
    assert manifests_of(pull(), blobs, fetched=["b"]) == {"two"}
    assert manifests_of(pull(), blobs, fetched=[]) == frozenset()


def test_a_pull_by_digest_has_its_own_manifest_or_those_of_its_index() -> None:
    blobs = [manifest("sha256:1f", "a", created_at=1.0), manifest("sha256:2f", "b"), index("sha256:3f", "sha256:2f")]
    assert manifests_of(pull("r.example/app@sha256:1f"), blobs, fetched=[]) == {"sha256:1f"}
    assert manifests_of(pull("r.example/app@sha256:3f"), blobs, fetched=[]) == {"sha256:2f"}


def test_a_manifest_that_is_too_large_is_never_read() -> None:
    assert not manifests_of(pull(), [manifest("big", "a", size=5 << 20)], fetched=[])


def test_pulls_of_one_repository_that_began_together_name_each_other() -> None:
    one, two = pull("r.example/app:1"), pull("r.example/app:2")
    blobs = [manifest("m1", "a"), manifest("m2", "b")]
    found = identified([one, two], [], blobs, [])
    both = frozenset({"m1", "m2"})
    assert [(p.image, p.manifests, p.shared_with) for p in found] == [
        ("r.example/app:1", both, ("r.example/app:2",)),
        ("r.example/app:2", both, ("r.example/app:1",)),
    ]


def test_the_manifest_of_an_earlier_pull_is_not_taken_for_a_later_one_unless_there_is_no_other() -> None:
    earlier = pull("r.example/app:1", manifests=frozenset({"m1"}), layers=(Layer("a", 1),))
    later = pull("r.example/app:2")
    (found,) = identified([later], [earlier], [manifest("m1", "a"), manifest("m2", "b")], [])
    assert found.manifests == {"m2"}
    assert not found.shared_with
    (found,) = identified([later], [earlier], [manifest("m1", "a")], [])
    assert found.manifests == {"m1"}


def test_the_layers_of_a_manifest() -> None:
    layers = [{"digest": "a", "size": 10}, {"digest": "b", "size": 20}, {"digest": "a", "size": 10}]
    assert layers_of(json.dumps({"layers": layers}).encode()) == (Layer("a", 10), Layer("b", 20))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"layers":5}',
        b'{"layers":[{"digest":"a"}]}',
        b'{"layers":[{"digest":"a","size":"x"}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_manifest_has_no_layers(content: bytes) -> None:
    assert layers_of(content) == ()


def test_layers_are_bounded() -> None:
    layers = [{"digest": str(number), "size": 1} for number in range(10_000)]
    assert len(layers_of(json.dumps({"layers": layers}).encode())) == 512


def test_at_first_all_layers_are_looked_for_and_then_the_next_few() -> None:
    layers = tuple(Layer(str(number), 10) for number in range(30))
    progress = pull(layers=layers)
    assert missing(progress, {"3": 5}) == [layer.digest for layer in layers if layer.digest != "3"]
    progress = advanced(progress, 7.0, {"3": 5}, ["0"])
    assert missing(progress, {"3": 6}) == ["1", "2", "4", "5", "6", "7", "8", "9"][:MAX_LOOKS]


def test_bytes_are_those_of_complete_layers_and_of_those_being_fetched() -> None:
    progress = pull(layers=(Layer("a", 100), Layer("b", 50), Layer("c", 30)))
    progress = advanced(progress, 7.0, {"b": 20, "c": 99}, ["a"])
    assert (progress.arrived, progress.total) == (150, 180)  # never more of a layer than it has


def test_what_was_there_at_the_first_look_is_no_rate_and_later_bytes_are() -> None:
    progress = advanced(pull(layers=(Layer("a", 1000), Layer("b", 1000))), 10.0, {"b": 0}, ["a"])
    assert (progress.rate(), progress.grew_at) == (0.0, 10.0)
    progress = advanced(progress, 12.0, {"b": 200}, [])
    assert progress.rate() == 100.0
    progress = advanced(progress, 14.0, {"b": 200}, [])
    assert (progress.rate(), progress.grew_at) == (50.0, 12.0)
    for now in (16.0, 18.0, 20.0, 22.0, 24.0):
        progress = advanced(progress, now, {"b": 200}, [])
    assert progress.rate() == 0.0


def test_without_a_manifest_nothing_is_known() -> None:
    progress = advanced(pull(), 7.0, {"a": 10}, [])
    assert (progress.arrived, progress.total, progress.rate(), missing(progress, {})) == (0, 0, 0.0, [])
