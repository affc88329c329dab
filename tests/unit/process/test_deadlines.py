"""When work is overdue, and when it is not: both directions, in ticks of the watchdog."""

import asyncio
import threading

from shared.cri.channel import CriChannel
from shared.process.deadlines import Deadlines, WorkThreads, in_turn, waiting_for, work_on
from shared.process.task_stacks import task_stacks
from tests.support.waits.deadline import WAIT_SECONDS


def pass_time(deadlines: Deadlines, seconds: float) -> None:
    for _ in range(int(deadlines.in_ticks(seconds))):
        deadlines.tick()


def test_work_without_progress_is_overdue_after_its_time_and_not_before() -> None:
    deadlines = Deadlines()
    deadlines.begin("the lane of pod u", 60.0)
    pass_time(deadlines, 60.0)
    assert deadlines.overdue() is None
    deadlines.tick()
    assert deadlines.overdue() == "the lane of pod u has made no progress for 60 s"


def test_progress_restarts_the_time_and_work_that_ended_is_never_overdue() -> None:
    deadlines = Deadlines()
    steps, done = deadlines.begin("steps", 60.0), deadlines.begin("done", 60.0)
    done.ended()
    for _ in range(10):
        pass_time(deadlines, 60.0)
        steps.progressed()
    assert deadlines.overdue() is None


def test_a_process_that_was_stopped_for_long_has_no_ticks_and_nothing_overdue() -> None:
    deadlines = Deadlines()
    deadlines.begin("the lane of pod u", 60.0)
    deadlines.tick()  # the one that came when it went on
    assert deadlines.overdue() is None


async def under_way(
    deadlines: Deadlines, *waits: tuple[str, float | None]
) -> tuple["asyncio.Task[None]", asyncio.Event]:
    """Work of 60 s whose tasks wait for these until the event is set, and then for something of our own."""
    over = asyncio.Event()

    async def wait(what: str, seconds: float | None) -> None:
        with waiting_for(what, seconds):
            await over.wait()

    async def run() -> None:
        work_on(deadlines.begin("a call", 60.0))
        await asyncio.gather(*(wait(what, seconds) for what, seconds in waits))
        await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await settle()
    return task, over


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_waits_for_something_outside_is_not_overdue_until_that_is_over() -> None:
    deadlines = Deadlines()
    task, over = await under_way(deadlines, ("an image", None))
    pass_time(deadlines, 6 * 3600.0)
    assert deadlines.overdue() is None
    over.set()
    await settle()
    pass_time(deadlines, 60.0)
    assert deadlines.overdue() is None
    deadlines.tick()
    assert deadlines.overdue() == "a call has made no progress for 60 s"
    task.cancel()


async def test_a_wait_that_is_longer_than_what_is_waited_for_allows_is_overdue_beside_one_without_limit() -> None:
    deadlines = Deadlines()
    task, _ = await under_way(deadlines, ("an image", None), ("the answer to StopContainer", 180.0))
    pass_time(deadlines, 180.0)
    assert deadlines.overdue() is None
    deadlines.tick()
    assert deadlines.overdue() == "a call has waited for the answer to StopContainer longer than that may take"
    task.cancel()


async def test_who_waits_for_a_lock_waits_for_what_its_holder_waits_for() -> None:
    deadlines, lock, over = Deadlines(), asyncio.Lock(), asyncio.Event()

    async def run(name: str) -> None:
        work_on(deadlines.begin(name, 60.0))
        async with in_turn(lock, "the cgroup driver"):
            with waiting_for("the answer to RuntimeConfig", 7200.0):
                await over.wait()

    tasks = [asyncio.create_task(run(f"pod {number}")) for number in range(3)]
    await settle()
    pass_time(deadlines, 7200.0)
    assert deadlines.overdue() is None
    deadlines.tick()
    assert deadlines.overdue() == "pod 0 has waited for the answer to RuntimeConfig longer than that may take"
    over.set()
    await asyncio.gather(*tasks)
    assert not lock.locked()


async def test_a_blocking_call_that_hangs_is_waited_for_however_long_it_takes() -> None:
    deadlines, entered, released = Deadlines(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(WorkThreads())

    def hang() -> None:
        entered.set()
        released.wait(WAIT_SECONDS)

    async def run() -> None:
        work_on(deadlines.begin("PreparePod of pod u", 60.0))
        await asyncio.to_thread(hang)
        await asyncio.Event().wait()

    task = asyncio.create_task(run())
    while not entered.is_set():
        await asyncio.sleep(0)
    pass_time(deadlines, 60.0)
    assert deadlines.blocked() is None
    pass_time(deadlines, 3600.0)
    assert deadlines.overdue() is None
    assert deadlines.blocked() == "PreparePod of pod u waits for a blocking call that does not return"
    released.set()
    while any(work.waits for work in deadlines._works):
        await asyncio.sleep(0)
    assert deadlines.blocked() is None
    pass_time(deadlines, 65.0)
    assert deadlines.overdue() is not None
    task.cancel()


async def test_a_slow_runtime_is_waited_for_as_long_as_its_own_deadline_and_a_minute() -> None:
    class Stub:
        async def StopContainer(self, request: object, *, timeout: float, wait_for_ready: bool) -> None:  # noqa: N802
            await asyncio.Event().wait()

    async def run() -> None:
        work_on(deadlines.begin("KillPod of pod u", 60.0))
        await CriChannel("unix:///nowhere").call(Stub(), "StopContainer", None, 3600.0 + 120.0)

    deadlines = Deadlines()
    task = asyncio.create_task(run())
    await settle()
    pass_time(deadlines, 3600.0 + 120.0 + 60.0)
    assert deadlines.overdue() is None
    deadlines.tick()
    assert deadlines.overdue() == (
        "KillPod of pod u has waited for the answer to StopContainer longer than that may take"
    )
    task.cancel()


async def test_the_stacks_of_tasks_name_every_line_that_waits_for_another() -> None:
    async def inner() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    task = asyncio.create_task(outer(), name="lane u")
    await asyncio.sleep(0)
    _, _, text = task_stacks(asyncio.get_running_loop()).partition("Task lane u:\n")
    assert [line.split()[-1] for line in text.splitlines()[:3]] == ["outer", "inner", "wait"]
    assert "and 1 other tasks" in task_stacks(asyncio.get_running_loop(), most=1)
    task.cancel()
