"""A long wait of a test is seen, work of the process, its children or its neighbours is not taken for one."""

import subprocess
import sys
import time

import pytest

from tests.support.waits.deadline import MAX_SLOWNESS
from tests.support.waits.waiting import Usage, max_wait_seconds, read_usage, waited_seconds


def test_a_sleep_is_a_wait() -> None:
    begin = read_usage()
    time.sleep(0.3)
    assert waited_seconds(begin, read_usage(), 1.0) > 0.2


@pytest.mark.long
def test_work_of_this_process_and_of_a_child_is_no_wait() -> None:
    begin = read_usage()
    deadline = time.thread_time() + 0.2
    while time.thread_time() < deadline:
        pass
    subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)
    end = read_usage()
    worked = end.cpu - begin.cpu + end.children - begin.children
    assert worked > 0.2
    assert waited_seconds(begin, end, 1.0) <= max(0.0, end.wall - begin.wall - worked)


def test_time_without_a_cpu_is_no_wait() -> None:
    begin = Usage(0.0, 0.0, 0.0, 0.0)
    assert waited_seconds(begin, Usage(9.0, 1.0, 0.0, 6.0), 1.0) == 2.0
    # The work of this process takes no longer than its CPU time, however many processes want the CPU.
    assert waited_seconds(begin, Usage(9.0, 1.0, 0.0, 0.0), 6.0) == 8.0
    assert waited_seconds(begin, Usage(9.0, 0.0, 3.0, 0.0), 3.0) == 0.0


@pytest.mark.parametrize(("slowness", "seconds"), [(1.0, 5.0), (1.5, 7.5), (MAX_SLOWNESS, 10.0)])
def test_a_wait_for_the_next_full_look_is_too_long_on_the_slowest_machine(slowness: float, seconds: float) -> None:
    assert max_wait_seconds(slowness) == seconds < 20
