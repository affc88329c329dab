"""A following decodes what its replica holds; what it cannot read it may neither use nor take for absent."""

import logging
from typing import Any

import msgspec
import pytest

from bus import codec
from bus.frames import Update, UpdateKind
from bus.interface import Change, Deleted, Freshness, Put
from bus.measured import DropCounters
from bus.messages.beat import Beat
from bus.messages.snapshot import Snapshot
from bus.messages.sources import DesiredPod
from bus.messages.streams import PODS_DESIRED
from bus.stream import StreamFollower
from tests.fakes.memory_bus import ManualClock

COMPLETE = Freshness(complete=True, stale=False)
SKEWED = b'{"uid":["of","another","schema"]}'


def pod(uid: str, source: str = "file") -> DesiredPod:
    return DesiredPod(uid=uid, source=source, pod={})


def encoded(value: DesiredPod) -> bytes:
    return bytes(codec.encode(value, "value"))


class Follower:
    """A following in step with incarnation `first`, and what it delivers as words."""

    def __init__(self) -> None:
        self.delivered: list[str] = []
        self.following = StreamFollower(PODS_DESIRED, DropCounters(ManualClock()))
        self.following.listen(self._record)
        self.number = 0

    def _record(self, change: Change[DesiredPod]) -> None:
        match change:
            case Put(key):
                self.delivered.append(f"put {key}")
            case Deleted(key):
                self.delivered.append(f"deleted {key}")
            case Freshness(complete):
                self.delivered.append("complete" if complete else "incomplete")

    def snapshot(self, incarnation: str = "first", *, complete: bool = True, **entries: bytes) -> list[str]:
        """The owner's snapshot arrives; what was delivered because of it."""
        del self.delivered[:]
        self.following.beat(
            Beat(
                service="sources", incarnation=incarnation, protocol="2.0", pid=1, sent_at=0.0,
                streams={PODS_DESIRED.name: self.number + 1},
            ),
            0.0,
        )  # fmt: skip
        self.number += 1
        raw = {key: msgspec.Raw(value) for key, value in entries.items()}
        self.following.snapshot(
            Snapshot(
                stream=PODS_DESIRED.name, incarnation=incarnation, number=self.number, complete=complete, entries=raw
            ),
            0.0,
        )
        return self.delivered

    def update(self, kind: UpdateKind, key: str = "", value: bytes = b"") -> list[str]:
        """The next update arrives; what was delivered because of it."""
        del self.delivered[:]
        self.number += 1
        fields: dict[str, Any] = {"stream": PODS_DESIRED.name, "incarnation": "first", "number": self.number}
        self.following.update(Update(kind=kind, key=key, value=value, **fields), 0.0)
        return self.delivered


@pytest.fixture
def follower() -> Follower:
    follower = Follower()
    follower.snapshot(a=encoded(pod("a")), b=encoded(pod("b")))
    assert follower.following.complete
    return follower


def test_a_value_that_does_not_decode_makes_the_copy_incomplete_and_keeps_the_one_before(follower: Follower) -> None:
    assert follower.update(UpdateKind.PUT, "a", SKEWED) == ["incomplete"]
    assert not follower.following.complete
    assert follower.following.state == {"a": pod("a"), "b": pod("b")}


def test_a_new_key_that_does_not_decode_is_not_listed_and_the_copy_is_incomplete(follower: Follower) -> None:
    assert follower.update(UpdateKind.PUT, "c", SKEWED) == ["incomplete"]
    assert sorted(follower.following.state) == ["a", "b"]


def test_a_readable_value_makes_it_complete_again_after_it_is_delivered(follower: Follower) -> None:
    follower.update(UpdateKind.PUT, "a", SKEWED)
    assert follower.update(UpdateKind.PUT, "a", encoded(pod("a", "http"))) == ["put a", "complete"]
    assert follower.following.complete


def test_the_deletion_of_what_was_never_readable_makes_it_complete_again(follower: Follower) -> None:
    follower.update(UpdateKind.PUT, "c", SKEWED)
    assert follower.update(UpdateKind.DELETE, "c") == ["complete"]


def test_one_unreadable_key_of_two_is_enough(follower: Follower) -> None:
    assert follower.update(UpdateKind.PUT, "a", SKEWED) == ["incomplete"]
    assert follower.update(UpdateKind.PUT, "b", SKEWED) == []
    assert follower.update(UpdateKind.DELETE, "a") == ["deleted a"]
    assert follower.update(UpdateKind.DELETE, "b") == ["deleted b", "complete"]


def test_a_snapshot_with_an_unreadable_value_is_never_called_complete(follower: Follower) -> None:
    delivered = follower.snapshot("second", a=SKEWED, b=encoded(pod("b")))
    assert "complete" not in delivered
    assert follower.following.state == {"a": pod("a"), "b": pod("b")}
    assert follower.snapshot("third", a=encoded(pod("a", "http")), b=encoded(pod("b"))) == ["put a", "complete"]


def test_a_first_snapshot_with_an_unreadable_value_is_fresh_but_not_complete() -> None:
    follower = Follower()
    assert follower.snapshot(a=SKEWED, b=encoded(pod("b"))) == ["put b", "incomplete"]
    assert (follower.following.complete, follower.following.stale) == (False, False)


def test_one_key_repaired_and_another_broken_by_one_snapshot_is_not_complete_in_between(follower: Follower) -> None:
    follower.update(UpdateKind.PUT, "a", SKEWED)
    assert follower.snapshot(a=encoded(pod("a", "http")), b=SKEWED) == ["put a"]


def test_the_owner_being_complete_is_not_delivered_while_a_value_is_unreadable() -> None:
    follower = Follower()
    follower.snapshot(complete=False, a=SKEWED)
    assert follower.update(UpdateKind.COMPLETE) == []
    assert follower.update(UpdateKind.DELETE, "a") == ["complete"]


def test_the_log_names_the_key_and_what_follows(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        follower.update(UpdateKind.PUT, "a", SKEWED)
    assert "pods.desired a, incomplete until it decodes: " in caplog.text
