"""Profiles of this process: a busy thread is found, an idle one is not, and both are bounded."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from bus.interface import RequestRefusedError
from bus.messages.debugging import GetProfile, GetStacks, Profile, ProfiledStack, SetVerbosity
from services.frame import sampling
from services.frame.debugging import IN_USE, MAX_PROFILE_SECONDS, Debugging
from services.frame.sampling import MAX_FRAMES, Sampler
from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT


@pytest.fixture
def busy() -> Iterator[None]:
    """A thread that computes, and one that waits."""
    ending = threading.Event()

    def compute() -> None:
        while not ending.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=compute, name="busy"), threading.Thread(target=ending.wait, name="idle")]
    for thread in threads:
        thread.start()
    yield
    ending.set()
    for thread in threads:
        thread.join()


def profile_of_work() -> Profile:
    """A profile in which some thread used the CPU."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (profile := Sampler(0.1).run()).stacks:
        assert time.monotonic() < deadline
    return profile


def threads_of(profile: Profile) -> set[str]:
    return {stack.thread for stack in profile.stacks}


@pytest.mark.long
@pytest.mark.usefixtures("busy")
def test_cpu_time_is_counted_where_it_is_used() -> None:
    stacks, threads, deadline = list[ProfiledStack](), {"idle"}, time.monotonic() + WAIT_SECONDS
    # A busy machine may give the busy thread no time for half a second, and the idle one some on its way to its wait.
    while (not stacks or "idle" in threads) and time.monotonic() < deadline:
        profile = Sampler(0.5).run()
        stacks, threads = [stack for stack in profile.stacks if stack.thread == "busy"], threads_of(profile)
    assert "idle" not in threads
    assert stacks
    functions = {profile.frames[index].function for stack in stacks for index in stack.frames}
    assert any(name.endswith("compute") for name in functions)
    assert sum(stack.nanoseconds for stack in stacks) > 0


@pytest.mark.usefixtures("busy")
def test_different_stacks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_STACKS", 0)
    [stack] = profile_of_work().stacks
    assert stack.frames == () and stack.nanoseconds > 0


def test_deep_stacks_are_cut() -> None:
    ending = threading.Event()

    def deep(depth: int) -> None:
        if depth:
            deep(depth - 1)
        while not ending.is_set():
            sum(range(1000))

    thread = threading.Thread(target=deep, args=(MAX_FRAMES * 2,), name="deep")
    thread.start()
    try:
        stacks, deadline = list[ProfiledStack](), time.monotonic() + WAIT_SECONDS
        while not stacks and time.monotonic() < deadline:
            stacks = [stack for stack in profile_of_work().stacks if stack.thread == "deep"]
        assert stacks and max(len(stack.frames) for stack in stacks) == MAX_FRAMES
    finally:
        ending.set()
        thread.join()


async def test_one_profile_at_a_time_and_a_cancelled_one_makes_room() -> None:
    debugging = Debugging()
    first = asyncio.create_task(debugging.profile(GetProfile(seconds=60)))
    await asyncio.sleep(0)
    with pytest.raises(RequestRefusedError, match=IN_USE):
        await debugging.profile(GetProfile(seconds=1))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert isinstance(await debugging.profile(GetProfile(seconds=0.1)), Profile)
    for seconds in (-1, 0, MAX_PROFILE_SECONDS + 1):
        with pytest.raises(RequestRefusedError, match="at most 300 s"):
            await debugging.profile(GetProfile(seconds=seconds))


async def test_stacks_show_threads_and_tasks() -> None:
    stacks = await Debugging().stacks(GetStacks())
    assert "Thread MainThread:\n" in stacks.threads
    assert "test_stacks_show_threads_and_tasks" in stacks.threads


async def test_the_verbosity_reaches_the_log() -> None:
    got: list[int] = []
    answers = [await Debugging(got.append).set_verbosity(SetVerbosity(verbosity=given)) for given in (4, -1, 2**31)]
    assert got == [4, 0, 2**31 - 1] == [answer.verbosity for answer in answers]


@pytest.mark.long
def test_the_main_thread_of_a_forked_process_is_sampled_too() -> None:
    """A service is a fork of supervisord. Before Python 3.12, threading gives the main thread of a fork the number that
    the main thread of its parent has."""
    program = (
        "import os, threading, time\n"
        "from services.frame.sampling import Sampler\n"
        "if pid := os.fork():\n"
        "    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "profiles = []\n"
        "sampler = Sampler(60.0)\n"
        "thread = threading.Thread(target=lambda: profiles.append(sampler.run()))\n"
        "thread.start()\n"
        "while time.thread_time() < 0.3:\n"
        "    sum(range(1000))\n"
        "sampler.stop()\n"
        "thread.join()\n"
        "os._exit(0 if any(stack.thread == 'MainThread' for stack in profiles[0].stacks) else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=CHECKOUT).returncode == 0
