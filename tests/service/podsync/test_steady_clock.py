"""The clock that podsync decides by, over restarts: start number, base, and whether the machine was restarted."""

from pathlib import Path

import pytest

from services.podsync.adapters.steady_clock import RECORD, SteadyClock
from shared.files.checkpoint import Checkpoint
from tests.fakes.memory_bus import ManualClock


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "disk", tmp_path / "run")


def next_clock(checkpoint: Checkpoint, machine: str, clock: ManualClock | None = None) -> SteadyClock:
    """The clock of another podsync, on this start of the machine."""
    return SteadyClock(clock or ManualClock(), checkpoint, checkpoint.load_all().get(RECORD, {}), machine)


def test_only_the_first_process_after_a_start_of_the_machine_has_machine_started(checkpoint: Checkpoint) -> None:
    clocks = [next_clock(checkpoint, machine) for machine in ("a", "a", "b", "b")]
    assert [clock.boot for clock in clocks] == [1, 2, 3, 4]
    assert [clock.machine_started for clock in clocks] == [False, False, True, False]


def test_a_soft_reboot_after_the_wall_clock_was_set_moves_no_deadline(checkpoint: Checkpoint) -> None:
    before = next_clock(checkpoint, "a 5178", ManualClock(wall=0.0)).now()
    after = next_clock(checkpoint, "a 900123", ManualClock(wall=1_700_000_000.0))
    assert after.machine_started and after.now() == before
