"""The kernel notifies pleg of a cgroup whose use of memory crosses a threshold."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.pleg.adapters.memory_notifications import MemoryNotifications
from shared.host.cgroup_layout import find_hierarchies
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]

MIB = 1 << 20
GROW = "import sys; held = bytearray(64 << 20); print('grown', flush=True); sys.stdin.read()"


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of this test's own."""
    hierarchies = find_hierarchies()
    if hierarchies.unified is not None:
        pytest.skip("the kernel offers these notifications for cgroup v1 alone")
    directory = hierarchies.by_controller["memory"] / f"bulkhead-test-{os.getpid()}"
    directory.mkdir()
    yield directory
    directory.rmdir()


async def test_crossing_a_threshold_notifies_once_each_time_and_a_replaced_one_no_more(
    cgroup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notified, moments = asyncio.Event(), list[float]()

    def notify() -> None:
        moments.append(time.monotonic())
        notified.set()

    notifications = MemoryNotifications(asyncio.get_running_loop(), notify)
    notifications.watch_usage(cgroup, {"hard": 32 * MIB})
    assert not notified.is_set()
    with growing_in(cgroup) as process:
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.to_thread(crossed, cgroup, 32 * MIB)
            seen = time.monotonic()
            await notified.wait()
        with capsys.disabled():
            print(f"\nmemory threshold crossed → notified: {max(0.0, moments[0] - seen) * 1000:.0f} ms")
        notifications.watch_usage(cgroup, {})
        await asyncio.sleep(0)
        notified.clear()
        process.kill()
        process.wait()
    assert not notified.is_set()
    notifications.close()


async def test_a_cgroup_that_is_gone_and_a_kernel_without_pressure_files_are_left_alone(tmp_path: Path) -> None:
    notifications = MemoryNotifications(asyncio.get_running_loop(), lambda: None)
    notifications.watch_usage(tmp_path / "gone", {"hard": MIB})
    notifications.watch_stalls(tmp_path / "memory.pressure")
    notifications.close()


def crossed(cgroup: Path, threshold: int) -> None:
    """Wait until the cgroup uses so many bytes."""
    while int((cgroup / "memory.usage_in_bytes").read_text()) < threshold:
        time.sleep(0.001)


@contextlib.contextmanager
def growing_in(cgroup: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process in the cgroup that holds 64 MiB."""
    enter = f"import os, pathlib; pathlib.Path({str(cgroup / 'cgroup.procs')!r}).write_text(str(os.getpid()))"
    command = [sys.executable, "-c", f"{enter}; {GROW}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
