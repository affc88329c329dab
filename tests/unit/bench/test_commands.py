"""The times of commands: a line for each, and a command that fails is no sample."""

import sys

import pytest

from bench.commands import Command, Times, run_once, table
from bench.errors import BenchError


def test_a_line_has_median_maximum_cpu_and_number_of_runs() -> None:
    lines = table("podsync runs, load 0.50", {"status": Times(wall=[0.1, 0.3, 0.2], cpu=[0.05, 0.07, 0.06])})
    assert [line.split() for line in lines] == [
        ["podsync", "runs,", "load", "0.50", "median", "max", "CPU", "runs"],
        ["status", "0.200", "0.300", "0.060", "3"],
    ]


def test_a_run_is_a_sample_only_with_an_exit_code_that_is_expected() -> None:
    times = Times()
    run_once(Command("three", (sys.executable, "-c", "raise SystemExit(3)"), (0, 3)), times)
    assert len(times.wall) == len(times.cpu) == 1 and times.wall[0] >= times.cpu[0] > 0
    with pytest.raises(BenchError, match="exit code 3"):
        run_once(Command("three", (sys.executable, "-c", "raise SystemExit(3)")), times)
