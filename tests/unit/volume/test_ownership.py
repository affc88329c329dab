"""A volume is given to a group, and a change that takes long is reported."""

import os
from pathlib import Path

import pytest

from services.volume.adapters.ownership import REPORT_SECONDS, SLOW_AFTER, OwnershipChange, give_to_group
from services.volume.core.outcome import PluginEvent
from shared.clock import SystemClock


class SetClock(SystemClock):
    """A clock that a test advances."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("uid", "shown"),
    [("0d8f", "0d8f/volumes/data"), ("", "/root/pods/0d8f/volumes/data")],
    ids=["below a pod", "elsewhere"],
)
def test_a_change_that_takes_long_is_reported_after_half_a_minute_and_then_each_minute(uid: str, shown: str) -> None:
    clock, reported = SetClock(), list[PluginEvent]()
    change = OwnershipChange(uid, Path("/root/pods/0d8f/volumes/data"), clock, reported.append)
    for seconds in (0.0, SLOW_AFTER - 1, 1.0, REPORT_SECONDS - 1, 1.0, 0.0):
        clock.now += seconds
        change.visited()
    assert {(event.reason, event.uid, event.is_warning) for event in reported} == {
        ("VolumePermissionChangeInProgress", uid, True)
    }
    first, second = (event.message for event in reported)
    assert first.startswith(
        f"Setting volume ownership for {shown} is taking longer than expected, consider using OnRoot"
    )
    assert second == f"Setting volume ownership for {shown}, processed 5 files."


def test_each_entry_is_visited_once(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    (tmp_path / "link").symlink_to("a")
    visits = []
    give_to_group(tmp_path, os.getegid(), visited=lambda: visits.append(1))
    assert len(visits) == 4
