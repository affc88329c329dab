"""Measures how long a test has waited without working, so that a test that waits for a retry of the product is noticed.

A deadline of 60 s lets a test pass that waits 20 s for the next full look because an event is missing. What only a
busy machine costs does not count: the time in which a thread was ready to run, and that of child processes.
"""

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

MAX_WAIT_SECONDS = 5.0  # on an idle machine
MAX_WAIT_WHEN_SLOW_SECONDS = 10.0  # well below the 20 s between two full looks of the product
# Processes that want each CPU. Where more do, the threads of a test and the disk wait for others most of the time.
MAX_LOAD = 4.0
_SCHEDSTAT = Path("/proc/thread-self/schedstat")  # of the main thread: ns on a CPU, ns ready to run, turns


_of_others: list[float] = []  # CPU seconds of processes that worked for a test and are children of another process


@dataclass(frozen=True)
class Usage:
    """A moment of this process, in seconds: `wall`, `cpu` (its own), `children` (CPU time of those that have ended),
    `ready` (the main thread was ready to run, without a CPU)."""

    wall: float
    cpu: float
    children: float
    ready: float


def count_as_child(cpu: float) -> None:
    """Count the CPU time (seconds) of a process that has ended as that of a child of this process."""
    _of_others.append(cpu)


def read_usage() -> Usage:
    """Return the usage of the process at this moment. Without statistics of the kernel's scheduler `ready` is 0."""
    times = os.times()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        with _SCHEDSTAT.open("rb", buffering=0) as file:
            ready = int(file.read(100).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        ready = 0.0
    of_children = children.ru_utime + children.ru_stime + sum(_of_others)
    return Usage(time.monotonic(), times.user + times.system, of_children, ready)


def max_wait_seconds(slowness: float) -> float:
    """Return how long a test may wait on a machine that is so many times as slow as an idle one (`deadline`)."""
    return min(MAX_WAIT_SECONDS * slowness, MAX_WAIT_WHEN_SLOW_SECONDS)


def waited_seconds(begin: Usage, end: Usage, load: float) -> float:
    """Return the seconds between two moments in which the process neither worked nor was kept from it.

    `load`: how many processes want each CPU, at least 1: child processes take that many times their CPU time.
    """
    worked = end.cpu - begin.cpu + (end.children - begin.children) * max(1.0, load)
    return max(0.0, end.wall - begin.wall - worked - (end.ready - begin.ready))
