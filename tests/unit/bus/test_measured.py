"""Dropped frames are counted, and logged at most once a minute for each kind."""

import logging

import pytest

from bus.measured import DropCounters
from tests.fakes.memory_bus import ManualClock


def test_every_drop_is_counted_and_the_first_of_a_minute_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    drops = DropCounters(clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            drops.drop("frame", "not a Beat")
        clock.advance(59.0)
        drops.drop("frame", "not a Beat")
        clock.advance(1.0)
        drops.drop("frame", "no topic")
    assert drops.counts["frame"] == 7
    assert caplog.messages == [
        "bus: dropped a frame (1 since the last report): not a Beat",
        "bus: dropped a frame (6 since the last report): no topic",
    ]


def test_one_kind_does_not_silence_another(caplog: pytest.LogCaptureFixture) -> None:
    drops = DropCounters(ManualClock())
    drops.drop("frame", "a")
    drops.drop("request", "b")
    assert len(caplog.messages) == 2
