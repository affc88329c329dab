"""The holder of a lock that the last release took is found by its process id, and ended where it is an orphan."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.lock import ServiceLock
from bus.lock_holder import Holder
from services.frame.generation import SUPERVISORD, generation_of
from services.frame.signals import HAND_OVER
from services.frame.takeover import is_orphan, signal_orphans, take_over
from shared.errors import OperatorError
from shared.process_identity import identity_of
from tests.records.last_release import readers

RECORDED = Path(__file__).parents[2] / "records" / "last_release" / "lock.json"
_HOLD = """
import fcntl, json, os, sys, time
path, recorded, how = sys.argv[1:]
def hold():
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    record = {**json.load(open(recorded)), "pid": os.getpid()}
    os.pwrite(fd, json.dumps(record).encode().ljust(1023) + b"\\n", 0)
    print(os.getpid(), flush=True)
    time.sleep(600)
if how == "executed":
    hold()
elif os.fork() == 0:  # as the plug-in does it: the name is the service's, the environment that of supervisord
    open("/proc/self/comm", "w").write("server")
    hold()
time.sleep(600)
"""


class Machine:
    """Holders as the last release has them."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.lock = ServiceLock(run_dir, "server")
        self.lock.path.parent.mkdir()
        self.processes: list[subprocess.Popen[str]] = []
        self.pids: list[int] = []

    def supervisord(self) -> tuple["subprocess.Popen[str]", str]:
        process = subprocess.Popen(["sleep", "600"], text=True)
        self.processes.append(process)
        return process, generation_of(process.pid)

    def hold(self, how: str, supervisord: str = "") -> tuple[int, "subprocess.Popen[str]"]:
        """The holder, and the process that was started: itself, or the supervisord that it is a fork of."""
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(self.lock.path), str(RECORDED), how],
            env={**os.environ, **({SUPERVISORD: supervisord} if supervisord else {})},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        self.pids.append(int(process.stdout.readline()))
        return self.pids[-1], process


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    for pid in machine.pids:
        if alive(pid) and os.fsencode(machine.run_dir) in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    for process in machine.processes:
        end(process)
        if process.stdout is not None:
            process.stdout.close()


def alive(pid: int) -> bool:
    return bool(identity_of(pid))


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize("how", ["executed", "forked"])
async def test_an_orphan_is_ended_and_its_lock_taken(machine: Machine, how: str) -> None:
    if how == "executed":
        supervisord, generation = machine.supervisord()
        pid, process = machine.hold(how, generation)
    else:
        pid, supervisord = machine.hold(how)
    end(supervisord)
    holder = machine.lock.held_by()
    assert holder is not None and (holder.pid, holder.process) == (pid, identity_of(pid))
    assert is_orphan(holder)
    _, ours = machine.supervisord()
    lock = ServiceLock(machine.run_dir, "server", ours)
    descriptor = os.pidfd_open(pid)
    assert await take_over(lock, ours, 20)
    assert select.select([descriptor], [], [], 20)[0], "it ends"
    os.close(descriptor)
    if how == "executed":
        assert process.wait(10) == -HAND_OVER
    assert lock.holder() == os.getpid()


async def test_a_stop_ends_an_orphan(machine: Machine) -> None:
    pid, supervisord = machine.hold("forked")
    end(supervisord)
    assert [orphan.pid for orphan in signal_orphans([machine.lock], signal.SIGTERM)] == [pid]
    await machine.lock.acquire()


@pytest.mark.parametrize("how", ["executed under a supervisord", "executed", "forked"])
async def test_one_whose_supervisord_runs_or_that_has_none_is_of_another_agent(machine: Machine, how: str) -> None:
    generation = machine.supervisord()[1] if how == "executed under a supervisord" else ""
    pid, process = machine.hold(how.partition(" ")[0], generation)
    expected = generation_of(process.pid) if how == "forked" else generation
    assert machine.lock.held_by() == Holder(pid, identity_of(pid), expected)
    _, ours = machine.supervisord()
    with pytest.raises(OperatorError, match=f"as process {pid} of another agent"):
        await take_over(ServiceLock(machine.run_dir, "server", ours), ours)
    assert alive(pid)


def test_another_process_that_has_the_id_by_now_is_not_the_holder(machine: Machine) -> None:
    other, _ = machine.supervisord()
    machine.lock.path.write_text(RECORDED.read_text().replace("4711", str(other.pid)))
    assert machine.lock.held_by() is None


def test_the_starts_of_the_last_release_do_not_count_and_it_reads_who_holds_ours(machine: Machine) -> None:
    machine.lock.path.write_bytes(RECORDED.read_bytes())
    assert machine.lock.try_acquire()
    assert machine.lock.record_start(3725.0) == 0
    assert readers.lock(machine.lock.path.read_bytes()) == (os.getpid(), [(3725.0, 0.0)])
    machine.lock.release()
