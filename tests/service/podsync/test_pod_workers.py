"""The worker of a pod: an interrupt before the call was sent interrupts it."""

import asyncio
from pathlib import Path

from services.podsync.controllers.pod_streams import PodStreams
from services.podsync.controllers.pod_workers import PodWorkers
from services.podsync.core.pod.events import CallFailed, Event
from services.podsync.core.pod.instructions import Call, InterruptCall, PullImage
from shared.files.checkpoint import Checkpoint
from shared.process.deadlines import Deadlines
from shared.tracing.tracer import Tracer
from tests.fakes.memory_bus import MemoryNetwork
from tests.support.waits.deadline import WAIT_SECONDS


async def test_a_call_that_is_given_up_before_it_is_on_its_way_is_not_waited_for(tmp_path: Path) -> None:
    network = MemoryNetwork()
    bus = network.bus("podsync")
    outcome: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    async def never(call: Call) -> Event:
        await asyncio.Event().wait()
        raise AssertionError

    workers = PodWorkers(
        checkpoint=Checkpoint(tmp_path / "pods", tmp_path / "spare"),
        streams=PodStreams(bus),
        perform=never,
        end_reads=lambda uid: None,
        finished=outcome.set_result,
        settled=lambda uid: None,
        trouble=lambda what, line: None,
        clock=network.clock,
        deadlines=Deadlines(),
        tracer=Tracer(),
    )
    workers.add("u1", PullImage(cause="test", uid="u1", container="c", image="busybox:1", sandbox_attempt=0))
    workers.add("u1", InterruptCall(cause="test", uid="u1"))
    try:
        event = await asyncio.wait_for(outcome, WAIT_SECONDS)
    finally:
        await workers.close()
    assert isinstance(event, CallFailed) and event.interrupted
