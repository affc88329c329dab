"""The record of a shutdown on disk, and the file that a Go kubelet keeps beside it (node.md 3 "State file")."""

import json
from typing import Any

import pytest

from services.podsync.core.shutdown.record import plain_shutdown, read_shutdown, read_state_file, state_file
from services.podsync.core.shutdown.sequence import Shutdown

SHUTDOWN = Shutdown(
    boot="b1", signal="PrepareForShutdown", began=1e9, group=1, group_began=77.5, unfinished=("web_default(u1)",)
)


def test_a_record_is_read_as_it_was_written() -> None:
    written = json.loads(json.dumps(plain_shutdown(SHUTDOWN)))
    assert read_shutdown(written, now=100.0) == SHUTDOWN
    assert read_shutdown(plain_shutdown(None), now=100.0) is None


def test_no_moment_of_a_record_is_in_the_future() -> None:
    found = read_shutdown(plain_shutdown(SHUTDOWN), now=50.0)
    assert found is not None and found.group_began == 50.0


@pytest.mark.parametrize(
    "change",
    [
        {"boot": 1},
        {"group": "x"},
        {"group": True},
        {"began": None},
        {"began": 1e300},
        {"began": float("nan")},
        {"ended": -1.0},
        {"unfinished": "web"},
        {"ended": []},
    ],
)
def test_a_record_that_is_not_understood_is_none(change: dict[str, Any]) -> None:
    assert read_shutdown(plain_shutdown(SHUTDOWN) | change, now=100.0) is None


@pytest.mark.parametrize("record", [None, [], "x", {"boot": "b1"}])
def test_other_values_are_no_record(record: Any) -> None:
    assert read_shutdown(record, now=100.0) is None


def test_the_file_of_the_go_kubelet_shows_when_the_shutdown_began_and_ended() -> None:
    running = state_file(SHUTDOWN)
    assert json.loads(running) == {"startTime": "2001-09-09T01:46:40Z", "endTime": "0001-01-01T00:00:00Z"}
    assert read_state_file(running) == (1e9, 0.0)
    go = json.dumps({"startTime": "2001-09-09T03:46:40.123456+02:00", "endTime": "2001-09-09T01:46:50Z"}).encode()
    assert read_state_file(go) == (1e9 + 0.123456, 1e9 + 10)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"startTime": 5}', b'{"startTime": "yesterday", "endTime": {}}', b" " * 5000],
)
def test_a_file_that_is_not_understood_has_no_moments(content: bytes) -> None:
    assert read_state_file(content) == (0.0, 0.0)
