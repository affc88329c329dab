"""The clock podsync decides by, over its lives: number, base, and whether the machine was started anew in between."""

from pathlib import Path

import pytest

from bus.memory import ManualClock
from services.podsync.adapters import steady_clock
from services.podsync.adapters.steady_clock import RECORD, SteadyClock
from shared.checkpoint import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "disk", tmp_path / "run")


def live(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, machine: str) -> SteadyClock:
    """Another life, on this start of the machine."""
    monkeypatch.setattr(steady_clock, "boot_id", lambda: machine)
    return SteadyClock(ManualClock(), checkpoint, checkpoint.load_all().get(RECORD, {}))


def test_only_the_first_life_after_a_start_of_the_machine_says_so(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = [live(checkpoint, monkeypatch, machine) for machine in ("a", "a", "b", "b")]
    assert [life.boot for life in lives] == [1, 2, 3, 4]
    assert [life.machine_started for life in lives] == [False, False, True, False]
