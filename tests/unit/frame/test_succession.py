"""The newest supervisord's process becomes the service, and ends an orphan only."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from bus.lock import ServiceLock
from bus.manifest import Holder
from services.frame import launch, service_log, succession
from services.frame.draining import places, take_place
from services.frame.generation import generation_of
from services.frame.signals import HAND_OVER
from services.frame.succession import (
    GRACE_SECONDS,
    SHORT_GRACE_SECONDS,
    acquire_lock,
    send_signal,
    signal_orphans,
    supervisord_watched,
)
from shared.errors import OperatorError
from shared.process.identity import identity_of
from tests.support.waits.deadline import WAIT_SECONDS

_HOLDER = """
import os, signal, sys, time
from pathlib import Path
from bus.lock import ServiceLock
from services.frame.signals import HAND_OVER
run_dir, generation, answer, name = sys.argv[1:]
lock = ServiceLock(Path(run_dir), name, generation)
def release(*_):
    lock.release()
    os.write(1, b"released\\n")
if answer == "release":
    signal.signal(HAND_OVER, release)
elif answer == "ignore":
    signal.signal(HAND_OVER, signal.SIG_IGN)
elif answer == "hang":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
assert lock.try_acquire()
os.write(1, b"held\\n")
while True:
    time.sleep(60)
"""


class Machine:
    """Supervisords that only sleep, and holders of the lock that they started."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.processes: list[subprocess.Popen[str]] = []

    def supervisord(self) -> tuple["subprocess.Popen[str]", str]:
        process = subprocess.Popen(["sleep", "600"], text=True)
        self.processes.append(process)
        return process, generation_of(process.pid)

    def holder(self, generation: str, answer: str = "end", name: str = "server") -> "subprocess.Popen[str]":
        """`answer` to HAND_OVER: `end`, `ignore`, or `release` the lock and go on; `hang` ignores SIGTERM."""
        command = [sys.executable, "-c", _HOLDER, str(self.run_dir), generation, answer, name]
        process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
        self.processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        return process

    def orphan(self, answer: str = "end", name: str = "server") -> "subprocess.Popen[str]":
        supervisord, generation = self.supervisord()
        holder = self.holder(generation, answer, name)
        end(supervisord)
        return holder

    def lock(self, generation: str) -> ServiceLock:
        return ServiceLock(self.run_dir, "server", generation)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    for process in machine.processes:
        end(process)
        if process.stdout is not None:
            process.stdout.close()


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


async def test_a_free_lock_is_taken_with_and_without_a_supervisord(machine: Machine) -> None:
    for generation in ("", machine.supervisord()[1]):
        lock = machine.lock(generation)
        assert await acquire_lock(lock, generation)
        assert lock.held
        lock.release()


@pytest.mark.long
async def test_a_process_whose_supervisord_has_ended_takes_nothing_over(machine: Machine) -> None:
    supervisord, generation = machine.supervisord()
    end(supervisord)
    lock = machine.lock(generation)
    assert not await acquire_lock(lock, generation)
    orphan = machine.orphan()
    assert not await acquire_lock(lock, generation)
    assert not lock.held and orphan.poll() is None


@pytest.mark.long
async def test_an_orphan_hands_over(machine: Machine) -> None:
    orphan, (_, generation) = machine.orphan(), machine.supervisord()
    lock = machine.lock(generation)
    assert await acquire_lock(lock, generation, WAIT_SECONDS)  # it is not killed where the machine is slow
    assert orphan.wait(WAIT_SECONDS) == -HAND_OVER
    held = lock.held_by()
    assert held == Holder(os.getpid(), identity_of(os.getpid()), generation)


@pytest.mark.long
async def test_an_orphan_that_does_not_hand_over_in_time_is_killed(machine: Machine) -> None:
    orphan, (_, generation) = machine.orphan("ignore"), machine.supervisord()
    assert await acquire_lock(machine.lock(generation), generation, 0.1)
    assert orphan.wait(WAIT_SECONDS) == -signal.SIGKILL


@pytest.mark.long
async def test_an_orphan_that_releases_the_lock_goes_on(machine: Machine) -> None:
    orphan = machine.orphan("release")
    for _ in range(3):  # a second and a third successor leave it alone
        supervisord, generation = machine.supervisord()
        lock = machine.lock(generation)
        assert await acquire_lock(lock, generation, WAIT_SECONDS)  # it is not killed where the machine is slow
        lock.release()
        end(supervisord)
    assert orphan.poll() is None


@pytest.mark.long
async def test_a_stopped_orphan_is_replaced(machine: Machine) -> None:
    orphan, (_, generation) = machine.orphan("release"), machine.supervisord()
    orphan.send_signal(signal.SIGSTOP)
    assert await acquire_lock(machine.lock(generation), generation, 0.1)
    assert orphan.wait(WAIT_SECONDS) == -signal.SIGKILL


@pytest.mark.parametrize("supervised", [True, False])
async def test_the_process_of_a_running_agent_is_left_alone_and_named(machine: Machine, supervised: bool) -> None:
    holder = machine.holder(machine.supervisord()[1] if supervised else "")
    _, generation = machine.supervisord()
    with pytest.raises(OperatorError, match=f"server is running already, as process {holder.pid} of another agent"):
        await acquire_lock(machine.lock(generation), generation)
    with pytest.raises(OperatorError, match="stop that agent"):
        await acquire_lock(machine.lock(""), "")
    assert holder.poll() is None


def test_a_generation_of_hung_orphans_costs_less_than_two_seconds() -> None:
    assert SHORT_GRACE_SECONDS + GRACE_SECONDS <= 1.5, "the services begin to wait when bootstrap has the lock"


async def test_an_older_process_that_waits_never_ends_a_newer_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan, (older, generation) = machine.orphan("ignore"), machine.supervisord()
    monkeypatch.setattr(succession, "send_signal", lambda holder, number: end(older))
    assert not await acquire_lock(machine.lock(generation), generation, 0.1)
    assert orphan.poll() is None


async def test_a_holder_that_is_not_known_is_reported_once_and_waited_for(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    holder, (_, generation) = machine.holder(""), machine.supervisord()
    lock = machine.lock(generation)
    lock.path.write_text("?")
    waiting = asyncio.ensure_future(acquire_lock(lock, generation, 0.05))
    done, _ = await asyncio.wait({waiting}, timeout=0.5)
    assert not done and holder.poll() is None
    assert [record.message for record in caplog.records] == [
        f"server: {lock.path} is held by an unknown process (end it: `fuser` names it)"
    ]
    end(holder)
    async with asyncio.timeout(60):
        assert await waiting


def test_another_process_with_the_id_of_an_ended_one_is_not_signalled(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    innocent, _ = machine.supervisord()
    with monkeypatch.context() as patched:  # a process that is signalled does not end at once
        patched.setattr(signal, "pidfd_send_signal", lambda *_: pytest.fail("the process was signalled"))
        send_signal(Holder(innocent.pid, f"boot/{innocent.pid}/1", ""), signal.SIGKILL)
    ended, generation = machine.supervisord()
    end(ended)
    send_signal(Holder(ended.pid, generation, ""), signal.SIGKILL)


async def test_where_nothing_may_be_signalled_the_orphan_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    orphan, (_, generation) = machine.orphan(), machine.supervisord()
    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(OperatorError, match=f"process {orphan.pid}: cannot be signalled"):
        await acquire_lock(machine.lock(generation), generation)


async def test_the_end_of_the_supervisord_is_reported_while_it_is_watched(machine: Machine) -> None:
    supervisord, generation = machine.supervisord()
    ended = asyncio.Event()
    with supervisord_watched(generation, ended.set):
        await asyncio.sleep(0)
        assert not ended.is_set()
        end(supervisord)
        async with asyncio.timeout(60):
            await ended.wait()
    already = asyncio.Event()
    with supervisord_watched(generation, already.set):
        assert already.is_set()
    with supervisord_watched("", already.clear):
        assert already.is_set()


def test_so_many_drain_at_once_and_a_stop_signals_the_orphans_among_them(machine: Machine, tmp_path: Path) -> None:
    supervisord, generation = machine.supervisord()
    taken = [take_place(tmp_path, "server", generation) for _ in range(5)]
    assert [place is not None for place in taken] == [True] * 4 + [False]
    assert signal_orphans(places(tmp_path, "server"), signal.SIGTERM) == [], "their supervisord runs"
    end(supervisord)
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: received.append(1))
    try:
        orphans = signal_orphans(places(tmp_path, "server"), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert received and [orphan.pid for orphan in orphans] == [os.getpid()] * 4
    for place in taken:
        if place is not None:
            place.release()
    assert signal_orphans(places(tmp_path, "server"), signal.SIGTERM) == []


def test_bootstrap_ends_draining_servers_at_a_stop_and_kills_one_that_hangs(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the present server hangs and ends none."""
    monkeypatch.setenv("BULKHEAD_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(service_log, "start_log", lambda _: None)
    prompt, hung = machine.orphan(name="server-draining-0"), machine.orphan("hang", name="server-draining-3")
    present = machine.holder(machine.supervisord()[1])
    frame = launch._Frame("bootstrap", cast(Any, None), cast(Any, object()))
    frame._end_others()
    assert hung.wait(60) == -signal.SIGKILL
    assert prompt.wait(60) in (-signal.SIGTERM, -signal.SIGKILL), "a slow machine may need more than the second"
    assert present.poll() is None
