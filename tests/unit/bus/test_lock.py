"""One process per service: who holds the lock, who waits, and how long a crash-looping service is held back."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.lock import ServiceLock, ServiceStart, start_delay
from tests.support.waits.deadline import WAIT_SECONDS

HOLDER = """
import sys, time
from pathlib import Path
from bus.lock import ServiceLock
assert ServiceLock(Path(sys.argv[1]), "podsync").try_acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the lock of podsync."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_free_lock_is_taken_and_names_its_holder(tmp_path: Path) -> None:
    lock = ServiceLock(tmp_path, "podsync")
    assert lock.try_acquire()
    assert lock.try_acquire()
    assert lock.held
    assert ServiceLock(tmp_path, "podsync").holder() == os.getpid()
    lock.release()
    assert not lock.held


def test_a_second_one_does_not_get_it_until_it_is_released(tmp_path: Path) -> None:
    first, second = ServiceLock(tmp_path, "podsync"), ServiceLock(tmp_path, "podsync")
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire()
    second.release()


def test_each_service_has_a_lock_of_its_own(tmp_path: Path) -> None:
    first, second = ServiceLock(tmp_path, "podsync"), ServiceLock(tmp_path, "volume")
    assert first.try_acquire()
    assert second.try_acquire()
    first.release()
    second.release()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"{}", b'{"pid":"x"}', b"[]", b'{"pid":2147483647}'])
def test_a_file_that_names_no_living_process_names_no_holder(tmp_path: Path, content: bytes) -> None:
    lock = ServiceLock(tmp_path, "podsync")
    lock.path.parent.mkdir()
    lock.path.write_bytes(content)
    assert lock.holder() is None
    assert lock.try_acquire()
    assert lock.record_start(1.0) == 0.0
    lock.release()


@pytest.mark.long
async def test_a_standby_takes_over_when_the_holder_is_killed(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    lock = ServiceLock(tmp_path, "podsync")
    assert not lock.try_acquire()
    assert lock.holder() == holder.pid
    waiting = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    holder.send_signal(signal.SIGKILL)
    await asyncio.wait_for(waiting, WAIT_SECONDS)
    assert lock.held
    assert lock.holder() == os.getpid()
    lock.release()


async def test_a_standby_that_gave_up_leaves_the_lock_to_others(tmp_path: Path) -> None:
    first, standby, third = (ServiceLock(tmp_path, "podsync") for _ in range(3))
    assert first.try_acquire()
    waiting = asyncio.create_task(standby.acquire())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    first.release()
    await asyncio.wait_for(third.acquire(), WAIT_SECONDS)
    assert third.held and not standby.held
    third.release()


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    lock, other = ServiceLock(tmp_path, "podsync"), ServiceLock(tmp_path, "podsync")
    assert lock.try_acquire()
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        lock.release()
        assert other.try_acquire()
        child.kill()
    other.release()


def test_starts_are_counted_across_processes(tmp_path: Path) -> None:
    delays = []
    now = 100.0
    for _ in range(10):
        lock = ServiceLock(tmp_path, "podsync")
        assert lock.try_acquire()
        delays.append(lock.record_start(now))
        lock.release()
        now += delays[-1] + 1.0
    assert delays == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30]


def test_a_start_is_recorded_only_under_the_lock(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="is not held"):
        ServiceLock(tmp_path, "podsync").record_start(1.0)


class TestStartDelay:
    def test_the_first_start_and_three_quick_restarts_are_free(self) -> None:
        assert start_delay([], 0.0) == 0.0
        assert start_delay([ServiceStart(0.0, 0.0), ServiceStart(1.0, 0.0), ServiceStart(2.0, 0.0)], 3.0) == 0.0

    def test_a_process_that_ran_for_ten_seconds_resets_the_count(self) -> None:
        starts = [ServiceStart(float(at), 0.0) for at in range(8)]
        assert start_delay(starts, 16.9) > 0
        assert start_delay(starts, 17.0) == 0.0

    def test_time_spent_waiting_is_not_time_lived(self) -> None:
        starts = [*(ServiceStart(float(at), 0.0) for at in range(8)), ServiceStart(8.0, 30.0)]
        assert start_delay(starts, 47.0) == 30.0

    def test_it_never_waits_longer_than_thirty_seconds(self) -> None:
        assert start_delay([ServiceStart(float(at), 0.0) for at in range(16)], 16.0) == 30.0

    def test_starts_of_another_boot_do_not_count(self) -> None:
        assert start_delay([ServiceStart(9000.0 + at, 0.0) for at in range(8)], 5.0) == 0.0


def test_a_service_that_ends_on_request_has_not_crashed(tmp_path: Path) -> None:
    for number in range(20):
        lock = ServiceLock(tmp_path, "podsync")
        assert lock.try_acquire()
        assert lock.record_start(float(number)) == 0.0
        lock.record_end()
        lock.release()
