"""Waits until SIGSTOP has stopped a process: one that runs or waits for a CPU goes on for a moment after the signal."""

import time
from pathlib import Path

from tests.support.waits.deadline import WAIT_SECONDS


def wait_stopped(pid: int) -> None:
    """Return once all threads of the process are stopped. Raises AssertionError where that takes too long, and OSError
    where the process has ended."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not all(_is_stopped(thread) for thread in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} is not stopped"
        time.sleep(0.001)


def _is_stopped(thread: Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
    except OSError:
        return True  # it has ended
