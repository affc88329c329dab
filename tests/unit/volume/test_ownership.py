"""A volume is given to a group, and a change that takes long is reported."""

import os
import stat
from pathlib import Path

import pytest

from services.volume.adapters.ownership import OwnershipChange, give_to_group
from services.volume.core.operations.fs_group import REPORT_SECONDS, SLOW_AFTER_SECONDS, mode_for_group, was_given
from services.volume.core.operations.outcome import PluginEvent
from shared.time.clock import SystemClock


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
    for seconds in (0.0, SLOW_AFTER_SECONDS - 1, 1.0, REPORT_SECONDS - 1, 1.0, 0.0):
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


def test_each_entry_and_the_root_are_visited_once(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    (tmp_path / "link").symlink_to("a")
    visits = []
    give_to_group(tmp_path, os.getegid(), visited=lambda: visits.append(1))
    assert len(visits) == 5


@pytest.mark.parametrize(("before", "after"), [(0o4755, 0o4775), (0o2755, 0o2775), (0o1600, 0o1660), (0o444, 0o664)])
def test_a_file_keeps_its_special_bits_and_becomes_writable_for_the_group(
    tmp_path: Path, before: int, after: int
) -> None:
    file = tmp_path / "volume" / "bin" / "su"
    file.parent.mkdir(parents=True)
    file.touch()
    file.chmod(before)
    give_to_group(tmp_path / "volume", os.getegid())
    assert stat.S_IMODE(file.stat().st_mode) == after


def test_a_directory_that_a_container_replaces_by_a_link_leads_nowhere(tmp_path: Path) -> None:
    outside, volume = tmp_path / "outside", tmp_path / "volume"
    for directory in (outside, *(volume / name for name in "abc")):
        directory.mkdir(parents=True)
        (directory / "file").touch(0o600)
    swapped = list[Path]()

    def swap() -> None:
        """Once the walk is below one of the directories, the others become links."""
        for directory in volume.iterdir() if not swapped else ():
            if stat.S_IMODE((directory / "file").stat().st_mode) == 0o600:
                directory.rename(tmp_path / directory.name)
                directory.symlink_to(outside)
                swapped.append(directory)

    give_to_group(volume, os.getegid(), visited=swap)
    assert len(swapped) == 2
    assert stat.S_IMODE((outside / "file").stat().st_mode) == 0o600
    assert not outside.stat().st_mode & stat.S_ISGID


def test_the_walk_ends_where_a_container_moves_the_directory_that_it_is_in(tmp_path: Path) -> None:
    volume, other = tmp_path / "volume", tmp_path / "other"
    (volume / "a").mkdir(parents=True)
    (volume / "a" / "file").touch()
    other.mkdir(0o700)

    def move() -> None:
        if (volume / "a").exists():
            (volume / "a").rename(other / "a")

    with pytest.raises(OSError, match="a directory was moved"):
        give_to_group(volume, os.getegid(), visited=move)
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("mode", "read_only", "after"),
    [
        (stat.S_IFDIR | 0o700, False, 0o2770),
        (stat.S_IFDIR | 0o755, True, 0o2755),
        (stat.S_IFREG | 0o600, False, 0o660),
        (stat.S_IFREG | 0o400, True, 0o440),
    ],
    ids=["a directory", "a read-only directory", "a file", "a read-only file"],
)
def test_a_group_gets_a_mode_of_its_own(mode: int, read_only: bool, after: int) -> None:
    assert mode_for_group(mode, read_only=read_only) == after


def test_only_a_directory_of_the_group_with_its_bits_counts_as_given() -> None:
    given = stat.S_IFDIR | 0o2770
    assert was_given(given, 2000, 2000)
    assert not was_given(given, 0, 2000)
    assert not was_given(stat.S_IFDIR | 0o0770, 2000, 2000)
    assert not was_given(stat.S_IFREG | 0o2770, 2000, 2000)
