"""Who becomes the service, who stands by, and who ends because nobody started it any more."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bus.lock import ServiceLock
from services import standby
from services.generation import (
    SUPERVISORD,
    generation_of,
    same_supervisord,
    supervisor_generation,
    supervisor_process,
)


def signals() -> standby.Signals:
    return standby.Signals(on_second=lambda: None)


def started_by(monkeypatch: pytest.MonkeyPatch, identity: str) -> None:
    monkeypatch.setenv("SUPERVISOR_ENABLED", "1")
    monkeypatch.setenv(SUPERVISORD, identity)


def test_the_supervisord_that_started_us_is_known_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisord = subprocess.Popen(["sleep", "60"])
    identity = generation_of(supervisord.pid)
    started_by(monkeypatch, identity)
    supervisord.kill()
    supervisord.wait()
    assert (supervisor_generation(), supervisor_process()) == (identity, supervisord.pid)
    assert generation_of(supervisord.pid) == ""


def test_a_reload_begins_a_generation_of_the_same_supervisord() -> None:
    first, second = generation_of(os.getpid()), generation_of(os.getpid(), 2)
    assert first != second
    assert same_supervisord(first, second)
    assert not same_supervisord(first, generation_of(os.getppid()))
    assert not same_supervisord("", "")


def test_without_a_supervisord_there_is_no_generation_and_the_parent_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUPERVISOR_ENABLED", raising=False)
    monkeypatch.setenv(SUPERVISORD, "boot/1/2")  # of a supervisord that has nothing to do with us
    assert (supervisor_generation(), supervisor_process()) == ("", os.getppid())


def test_without_the_plug_in_the_parent_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERVISOR_ENABLED", "1")
    monkeypatch.delenv(SUPERVISORD, raising=False)
    assert supervisor_generation() == generation_of(os.getppid())


async def test_a_free_lock_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started_by(monkeypatch, generation_of(os.getppid()))
    lock = ServiceLock(tmp_path, "pleg")
    assert await standby.acquire(lock, signals())
    assert lock.held


def test_one_whose_supervisord_has_ended_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the process id is somebody else's by now."""
    supervisord = subprocess.Popen(["sleep", "60"])
    try:
        started_by(monkeypatch, generation_of(supervisord.pid))
        lock = ServiceLock(tmp_path, "pleg")
        assert not asyncio.run(standby.acquire(lock, signals()))
        supervisord.kill()
        supervisord.wait()
        assert not asyncio.run(standby.acquire(lock, signals()))
        assert not lock.held
    finally:
        supervisord.kill()
        supervisord.wait()


async def test_what_is_done_meanwhile_has_ended_when_the_lock_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_by(monkeypatch, generation_of(os.getppid()))
    holder, lock = ServiceLock(tmp_path, "bootstrap"), ServiceLock(tmp_path, "bootstrap")
    assert holder.try_acquire()
    began, told = asyncio.Event(), list[str]()

    async def meanwhile() -> None:
        told.append("began")
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            told.append("ended")

    acquiring = asyncio.create_task(standby.acquire(lock, signals(), meanwhile))
    await began.wait()
    assert not acquiring.done()
    holder.release()
    assert await acquiring
    assert lock.held and told == ["began", "ended"]


async def test_what_fails_meanwhile_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started_by(monkeypatch, generation_of(os.getppid()))
    holder, lock = ServiceLock(tmp_path, "bootstrap"), ServiceLock(tmp_path, "bootstrap")
    assert holder.try_acquire()

    async def meanwhile() -> None:
        raise OSError(24, "Too many open files")

    acquiring = asyncio.create_task(standby.acquire(lock, signals(), meanwhile))
    async with asyncio.timeout(20):
        while "Too many open files" not in caplog.text:
            await asyncio.sleep(0.005)
    assert not acquiring.done()
    holder.release()
    assert await acquiring


def refuse_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an older kernel does, a sandbox, or a machine without descriptors."""

    def refuse(_: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refuse)


async def test_where_nobody_gets_a_pidfd_a_service_begins_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_pidfds(monkeypatch)
    started_by(monkeypatch, generation_of(os.getppid()))
    lock = ServiceLock(tmp_path, "pleg")
    assert await standby.acquire(lock, signals())
    assert lock.held


async def test_and_one_that_stands_by_looks_whether_its_supervisord_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_pidfds(monkeypatch)
    monkeypatch.setattr(standby, "_LOOK_AT_PARENT", 0.01)
    started_by(monkeypatch, generation_of(os.getppid()))
    holder, lock = ServiceLock(tmp_path, "pleg"), ServiceLock(tmp_path, "pleg")
    assert holder.try_acquire()
    began = asyncio.Event()

    async def meanwhile() -> None:
        began.set()

    acquiring = asyncio.create_task(standby.acquire(lock, signals(), meanwhile))
    await began.wait()
    assert not acquiring.done()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    async with asyncio.timeout(20):
        assert not await acquiring
    assert holder.held and not lock.held


_SUPERVISORD = """
import os
import signal
from types import SimpleNamespace
from services import preloading
from services.generation import SUPERVISORD, generation_of
preloading.Preloading.load = lambda self: None
def execve(file, argv, env):
    os.write(1, f"{env.get(SUPERVISORD)} {env['KEPT']}\\n".encode())
    os._exit(0)
options = SimpleNamespace(execve=execve, fork=os.fork)
preloading.make(SimpleNamespace(options=options))
if os.fork():  # as supervisord does that goes into the background
    os.wait()
    os._exit(0)
for _ in range(2):
    if options.fork() == 0:
        options.execve("/bin/sh", ["/bin/sh"], {"KEPT": "yes"})
    os.wait()
options = SimpleNamespace(execve=execve, fork=os.fork)
preloading.make(SimpleNamespace(options=options))  # as at a reload
if options.fork() == 0:
    options.execve("/bin/sh", ["/bin/sh"], {"KEPT": "yes"})
os.wait()
print(generation_of(os.getpid()), "yes", flush=True)
"""


def test_what_supervisord_forks_is_told_by_whom_whatever_became_of_that_one() -> None:
    done = subprocess.run([sys.executable, "-c", _SUPERVISORD], capture_output=True, text=True, check=True, timeout=60)
    first, second, reloaded, itself = done.stdout.splitlines()
    assert first == second == itself
    assert reloaded == itself.replace(" yes", "/2 yes")


def test_what_the_holder_closes_while_it_is_looked_at_hides_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, told = ServiceLock(tmp_path, "x"), list[int]()
    samefile = Path.samefile

    def closing(self: Path, other: Path) -> bool:
        if self.readlink() != lock.path:
            raise FileNotFoundError(self)
        return samefile(self, other)

    monkeypatch.setattr(Path, "samefile", closing)
    monkeypatch.setattr(os, "kill", lambda pid, _: told.append(pid))
    assert lock.try_acquire()
    holder = os.getpid()
    monkeypatch.setattr(ServiceLock, "holder", lambda _: holder)
    monkeypatch.setattr(os, "getpid", lambda: -1)  # the holder, which is ourselves, is another process
    standby.pass_on(lock, signal.SIGTERM)
    assert told == [holder]
