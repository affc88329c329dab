"""The SLI of pod startup: from a pod's creation until the API server shows it running, without what it waited for."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.sources import ApiPodStatus
from shared.time.timestamps import rfc3339
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import Stage, on_stage
from tests.service.podsync.test_podsync_service import a_pod

TOTAL, SLI = "kubelet_pod_start_total_duration_seconds", "kubelet_pod_start_sli_duration_seconds"
FIRST = "kubelet_first_network_pod_start_sli_duration_seconds"


def show(stage: Stage, uid: str, status: dict[str, Any]) -> None:
    """The API server has this status of the pod."""
    stage.api_statuses.put(uid, ApiPodStatus(resource_version="1", status=status))


def create(stage: Stage, uid: str = "u1", status: dict[str, Any] | None = None, **spec: Any) -> str:
    """A pod that was created now and that the scheduler gave to our node."""
    pod = a_pod(uid, **spec)
    created = {"name": uid, "creationTimestamp": rfc3339(stage.network.clock.wall())}
    show(stage, uid, status or {"phase": "Pending"})
    return stage.want(pod | {"metadata": pod["metadata"] | created}, source="api")


def observed(stage: Stage, name: str) -> tuple[float, float]:
    """The number of observations and their sum."""
    *counts, total = stage.counted(name).get((), [0.0])
    return sum(counts), total


async def test_a_start_is_measured_when_the_api_server_shows_it_and_pulls_do_not_count(tmp_path: Path) -> None:
    runtime = FakeRuntime(pullable=["busybox:1"])
    runtime.hang("PullImage")
    async with on_stage(tmp_path, runtime) as stage:
        uid = create(stage)
        await stage.until(lambda: runtime.requests("PullImage"))
        await stage.network.advance(20.0)
        runtime.clear_faults()
        await stage.until(lambda: stage.running(uid))
        await stage.network.advance(2.0)
        assert observed(stage, TOTAL)[0] == 0  # podsync knows that it runs; the API server does not
        show(stage, uid, stage.status(uid))
        await stage.network.settle()
        assert observed(stage, TOTAL) == (1, 22.0)
        assert observed(stage, SLI) == (1, 2.0)
        assert stage.counted(FIRST) == {(): [2.0]}
        show(stage, uid, stage.status(uid) | {"message": "again"})
        await stage.network.settle()
        assert observed(stage, TOTAL) == (1, 22.0)


async def test_a_pod_with_state_is_measured_in_total_alone(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = create(stage, volumes=[{"name": "data", "hostPath": {"path": "/", "type": ""}}])
        show(stage, uid, {"containerStatuses": [{"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]})
        await stage.until(lambda: observed(stage, TOTAL)[0])
        assert observed(stage, SLI) == (0, 0.0)


@pytest.mark.long
async def test_the_time_of_init_containers_does_not_count(tmp_path: Path) -> None:
    init = {"name": "i", "image": "busybox:1", "imagePullPolicy": "IfNotPresent"}
    async with on_stage(tmp_path) as stage:
        uid = create(stage, initContainers=[{**init, "terminationMessagePath": "/dev/termination-log"}])
        await stage.until(lambda: stage.runtime.requests("StartContainer"))
        await stage.network.advance(30.0)
        (container,) = (await stage.runtime.observe(uid))[uid].containers
        stage.runtime.exit_container(container.id, 0)
        stage.seen.put(uid, (await stage.runtime.observe(uid))[uid])
        await stage.until(lambda: stage.running(uid))
        show(stage, uid, stage.status(uid))
        await stage.network.settle()
        assert (observed(stage, TOTAL), observed(stage, SLI)) == ((1, 30.0), (1, 0.0))


async def test_a_pod_that_an_earlier_kubelet_began_is_not_measured(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = create(stage, status={"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"})
        await stage.until(lambda: stage.running(uid))
        show(stage, uid, stage.status(uid))
        await stage.network.settle()
        assert observed(stage, TOTAL)[0] == 0
