"""Which supervisord started a process, and that what it forks knows it."""

import os
import subprocess
import sys
import time

import pytest

from services.frame.generation import (
    SUPERVISORD,
    generation_of,
    same_supervisord,
    started_after_boot,
    supervisor_generation,
    supervisor_process,
    supervisord_runs,
)
from tests.support.waits.deadline import WAIT_SECONDS


def started_by(monkeypatch: pytest.MonkeyPatch, identity: str) -> None:
    monkeypatch.setenv("SUPERVISOR_ENABLED", "1")
    monkeypatch.setenv(SUPERVISORD, identity)


def test_a_zombie_runs_no_more() -> None:
    supervisord = subprocess.Popen(["sleep", "60"])
    generation = generation_of(supervisord.pid)
    assert supervisord_runs(generation)
    supervisord.kill()
    os.waitid(os.P_PID, supervisord.pid, os.WEXITED | os.WNOWAIT)
    assert not supervisord_runs(generation)
    supervisord.wait()


@pytest.mark.parametrize("generation", ["", "boot", "boot/x/1", "boot/1/2"])
def test_what_names_no_process_does_not_run(generation: str) -> None:
    assert not supervisord_runs(generation)


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


_SUPERVISORD = """
import os
import signal
from types import SimpleNamespace
from services.frame import preloading
from services.frame.generation import SUPERVISORD, generation_of
preloading.Preloading.load = lambda self, modules: None
preloading.restart_promptly = lambda options: None
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


def test_a_fork_of_supervisord_gets_its_identity_even_when_that_has_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SUPERVISORD], capture_output=True, text=True, check=True, timeout=WAIT_SECONDS
    )
    first, second, reloaded, itself = done.stdout.splitlines()
    assert first == second == itself
    assert reloaded == itself.replace(" yes", "/2 yes")


@pytest.mark.parametrize("generation", ["", "b/1", "b/1/x", "b"])
def test_the_start_of_an_unknown_supervisord_is_not_known(generation: str) -> None:
    assert started_after_boot(generation) is None


def test_a_generation_names_the_seconds_after_the_boot() -> None:
    started = started_after_boot(generation_of(os.getpid(), load=2))
    assert started is not None and 0 < started <= time.clock_gettime(time.CLOCK_BOOTTIME)
