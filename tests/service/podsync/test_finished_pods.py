"""Finished pods that are not deleted cost the loop of podsync nothing when something else happens."""

from functools import partial
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.events import RuntimeChanged
from tests.service.podsync.stage import on_stage
from tests.service.podsync.test_podsync_service import a_pod
from tests.unit.podsync.admission.test_active_pods import finished, lines_executed


async def work_of_an_event(directory: Path, finished_pods: int) -> int:
    async with on_stage(directory) as stage:
        for number in range(finished_pods):
            stage.want(finished(number), "api")
        uid = stage.want(a_pod(), "api")
        tracked = stage.podsync.core.tracked
        await stage.until(lambda: stage.running(uid) and len(tracked) == finished_pods + 1)
        done = [pod for other, pod in tracked.items() if other != uid]
        await stage.until(lambda: all(pod.saved.state is PodState.FINISHED and not pod.call for pod in done))
        await stage.network.settle()
        return lines_executed(partial(stage.podsync.loop.handle, RuntimeChanged(reachable=True, network_ready=False)))


@pytest.mark.long
async def test_the_work_of_an_event_does_not_grow_with_the_pods_that_are_finished(tmp_path: Path) -> None:
    few, many = [await work_of_an_event(tmp_path / str(pods), pods) for pods in (5, 50)]
    assert many < 1.5 * few
