"""What finished pods that are not deleted cost podsync: nothing, when something else happens."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.events import PodDesired, PodObserved, RuntimeChanged, TimePassed, VolumesFreshness
from shared.model.runtime import RuntimePod
from tests.service.podsync.stage import on_stage
from tests.service.podsync.test_podsync_service import a_pod


def lines_executed(work: Callable[[], object]) -> int:
    """Lines of Python, loops counted once a turn: a measure of work that a busy machine does not change."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def finished(number: int) -> dict[str, Any]:
    pod = a_pod(f"done{number}", restartPolicy="Never")
    pod["metadata"]["name"] = f"job-{number}"
    return pod | {"status": {"phase": "Succeeded", "startTime": "2030-01-01T00:00:00Z"}}


async def work_of_each_event(directory: Path, finished_pods: int) -> dict[str, int]:
    async with on_stage(directory) as stage:
        for number in range(finished_pods):
            stage.want(finished(number), "api")
        uid = stage.want(a_pod(), "api")
        tracked = stage.podsync.core.tracked
        await stage.until(lambda: stage.running(uid) and len(tracked) == finished_pods + 1)
        done = [other for other in tracked if other != uid]
        await stage.until(
            lambda: all(tracked[other].saved.state is PodState.FINISHED and not tracked[other].call for other in done)
        )
        await stage.network.settle()
        later = stage.network.clock.monotonic() + 1
        seen = RuntimePod(uid="done0", name="job-0", namespace="default", observed_at=later)
        handle = stage.podsync.loop.handle
        return {
            type(event).__name__: lines_executed(lambda event=event: handle(event))  # type: ignore[misc]
            for event in (
                RuntimeChanged(reachable=True, network_ready=False),
                VolumesFreshness(complete=True, stale=False),
                PodObserved(observation=seen),
                TimePassed(),
                PodDesired(uid="u2", source="api", pod=a_pod("u2")),
            )
        }


@pytest.mark.long
async def test_the_work_of_an_event_does_not_grow_with_the_pods_that_are_finished(tmp_path: Path) -> None:
    few = await work_of_each_event(tmp_path / "few", 5)
    many = await work_of_each_event(tmp_path / "many", 50)
    assert {kind: many[kind] / few[kind] for kind in few if many[kind] > 1.5 * few[kind]} == {}
