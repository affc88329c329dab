"""A worker of a pod without progress is overdue to the watchdog, and one that waits for a call is not. An interrupt
before the call was sent interrupts it."""

import asyncio
import threading
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from services.podsync.controllers.pod_streams import PodStreams
from services.podsync.controllers.pod_workers import PodWorkers
from services.podsync.core.pod.events import CallFailed, Event
from services.podsync.core.pod.instructions import (
    Call,
    ContainerStop,
    InterruptCall,
    KillContainer,
    PublishAdmitted,
    PullImage,
    RunPostStartHook,
    SavePod,
)
from services.podsync.core.pod.published_items import published
from services.podsync.core.pod.saved import Saved
from shared.files.checkpoint import Checkpoint, RecordLocation
from shared.process.deadlines import BLOCKED_SECONDS, MAX_STALL_SECONDS, Deadlines, WorkThreads
from shared.tracing.tracer import Tracer
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.podsync.performer import UID, Performer, a_container, a_pod
from tests.support.waits.deadline import WAIT_SECONDS

DAY = 24 * 3600.0
EXEC = {"exec": {"command": ["quit"]}}


class Stage:
    """The workers over a checkpoint and a fake runtime with one running pod, and the watchdog's ticks."""

    def __init__(self, directory: Path) -> None:
        network = MemoryNetwork()
        bus = network.bus("podsync")
        hooks = {"postStart": EXEC, "preStop": EXEC}
        self.performer = Performer(directory, a_pod(a_container(lifecycle=hooks)), network.clock)
        self.checkpoint = Checkpoint(directory / "pods", directory / "spare")
        self.deadlines = Deadlines()
        self.streams = PodStreams(bus)
        self.outcomes: list[Event] = []
        self.workers = PodWorkers(
            checkpoint=self.checkpoint,
            streams=self.streams,
            perform=self.performer.perform,
            end_reads=self.performer.calls.end_reads,
            finished=self.outcomes.append,
            settled=lambda uid: None,
            trouble=lambda what, line: None,
            clock=network.clock,
            deadlines=self.deadlines,
            tracer=Tracer(),
        )
        asyncio.get_running_loop().set_default_executor(WorkThreads())

    async def under_way(self, call: Call, method: str) -> None:
        """The call has come to this request, which hangs."""
        hung = self.performer.runtime.hang(method)
        self.workers.add(UID, call)
        async with asyncio.timeout(WAIT_SECONDS):
            while not hung.reached.is_set():
                await asyncio.sleep(0)

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(self.deadlines.in_ticks(seconds))):
            self.deadlines.tick()


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    await stage.performer.run()
    return stage


def kill(stage: Stage, grace: int, *, pre_stop: bool) -> KillContainer:
    stop = ContainerStop(container="c", container_id=stage.performer.ids["c"], grace_seconds=grace, pre_stop=pre_stop)
    return KillContainer(uid=UID, stop=stop)


async def test_a_call_that_waits_for_nothing_outside_is_overdue(stage: Stage) -> None:
    await stage.under_way(kill(stage, 30, pre_stop=False), "StopContainer")  # the fake is no wait for the outside
    stage.pass_time(MAX_STALL_SECONDS)
    assert stage.deadlines.overdue() is None
    stage.deadlines.tick()
    assert stage.deadlines.overdue() == f"KillContainer of pod {UID} has made no progress for {MAX_STALL_SECONDS:.0f} s"
    await stage.workers.close()
    assert stage.deadlines.overdue() is None


async def test_hooks_and_pulls_may_last_for_hours(stage: Stage) -> None:
    await stage.under_way(kill(stage, int(3 * DAY), pre_stop=True), "ExecSync")
    stage.pass_time(DAY)
    assert stage.deadlines.overdue() is None
    await stage.under_way(RunPostStartHook(uid=UID, container="c", container_id=stage.performer.ids["c"]), "ExecSync")
    pull = PullImage(uid=UID, container="c", image="busybox:2", sandbox_attempt=0)
    await stage.under_way(pull, "PullImage")
    stage.pass_time(DAY)
    assert stage.deadlines.overdue() is None
    await stage.workers.close()


async def test_a_disk_that_takes_no_record_is_a_trouble_that_names_it_and_not_a_hang(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, released = threading.Event(), threading.Event()

    def hang(records: dict[str, object]) -> dict[str, RecordLocation]:
        entered.set()
        assert released.wait(10)
        return dict.fromkeys(records, RecordLocation.ON_DISK)

    monkeypatch.setattr(stage.checkpoint, "save_all", hang)
    shown = published("u2", "web", "shop", Saved(state=PodState.SYNC))
    stage.workers.add("u2", SavePod(uid="u2", record={}, urgent=True))
    stage.workers.add("u2", PublishAdmitted(published=shown))
    assert await asyncio.to_thread(entered.wait, 10)
    stage.pass_time(BLOCKED_SECONDS)
    assert stage.deadlines.blocked() is None
    stage.pass_time(DAY)
    assert stage.deadlines.overdue() is None
    where = stage.checkpoint.directory
    assert stage.deadlines.blocked() == f"the worker of pod u2 waits for a write to {where} that does not return"
    released.set()
    async with asyncio.timeout(WAIT_SECONDS):
        while not stage.streams.admitted.keys():
            await asyncio.sleep(0)
    await stage.workers.close()
    assert stage.deadlines.overdue() is stage.deadlines.blocked() is None


async def test_a_worker_without_anything_to_do_is_never_overdue(stage: Stage) -> None:
    stage.workers.add(UID, kill(stage, 0, pre_stop=False))
    async with asyncio.timeout(WAIT_SECONDS):
        while not stage.outcomes:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    stage.pass_time(DAY)
    assert stage.deadlines.overdue() is None
    await stage.workers.close()


async def test_a_call_that_is_given_up_before_it_is_on_its_way_is_not_waited_for(stage: Stage) -> None:
    stage.performer.runtime.hang("PullImage")
    stage.workers.add(UID, PullImage(uid=UID, container="c", image="busybox:2", sandbox_attempt=0))
    stage.workers.add(UID, InterruptCall(uid=UID))
    async with asyncio.timeout(WAIT_SECONDS):
        while not stage.outcomes:
            await asyncio.sleep(0)
    [event] = stage.outcomes
    assert isinstance(event, CallFailed) and event.interrupted
    await stage.workers.close()
