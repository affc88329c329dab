"""WAIT_SECONDS, the one deadline of tests that wait for real time: 60 s, and more where this machine is slow.

How slow it is, is measured once for a run of tests. Only a failure waits so long. A test that waits for more than one
event, or for one that takes long by itself, multiplies the constant; pytest's own limit of each test grows with it.
TEST_MIN_SLOWNESS is set where a machine is slow in ways that this does not measure, as User Mode Linux is.
"""

import os
import time

MAX_SLOWNESS = 5.0
_REFERENCE_SECONDS = 0.03  # what `_fixed_work` takes on a machine that does nothing else


def _fixed_work() -> float:
    """Return the seconds that some work takes, those included in which other processes have this CPU."""
    began = time.perf_counter()
    for _ in range(10):
        sum(range(250_000))
    return time.perf_counter() - began


def measure_slowness() -> float:
    """Return how many times as long as on an idle machine a process takes now, from 1 to MAX_SLOWNESS: by a
    measurement, or where that is more by the number of processes that have wanted each CPU in the last minute."""
    wanted = os.getloadavg()[0] / (os.cpu_count() or 1)
    known = float(os.environ.get("TEST_MIN_SLOWNESS", "1"))
    return min(max(1.0, known, _fixed_work() / _REFERENCE_SECONDS, wanted), MAX_SLOWNESS)


SLOWNESS = measure_slowness()
WAIT_SECONDS = 60.0 * SLOWNESS
