"""A pod that is to end does not wait for what its call reads from the API server, because it no longer needs that."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.sources import FoundObject, FoundServices, GetObject, GetServices
from services.podsync.adapters.cluster_reads import SourcesReads
from services.podsync.core.pod.events import PodEvicted
from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import Stage, cleared
from tests.service.podsync.test_podsync_service import a_pod

FROM_SECRET = {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a"}}}]}


class Stalled(Stage):
    """Sources answers the first GetObjects, and no other until `answer` is set. In these tests no time passes on the
    bus, so podsync gives up none because of its time limit."""

    def __init__(self, directory: Path, answered: int = 0, runtime: FakeRuntime | None = None) -> None:
        super().__init__(directory, runtime or FakeRuntime(images=["busybox:1"]))
        self.asked, self.answer, self._left = asyncio.Event(), asyncio.Event(), answered
        self.buses["sources"].answer(GetObject, self._object)
        self.buses["sources"].answer(GetServices, self._services)

    async def start(self) -> None:
        """Start podsync as one that has an API server."""
        await super().start()
        self.podsync.calls.cluster = SourcesReads(self.podsync.bus, "node1")

    async def _object(self, request: GetObject) -> FoundObject:
        self._left -= 1
        if self._left < 0:
            self.asked.set()
            await self.answer.wait()
        return FoundObject(object={"metadata": {"name": request.name}, "data": {"a": "eA=="}, "handler": ""})

    async def _services(self, request: GetServices) -> FoundServices:
        return FoundServices(services=(), synced=True)


def with_late(**fields: Any) -> Object:
    """A pod whose second container needs more than its first."""
    pod = a_pod()
    first = pod["spec"]["containers"][0]
    pod["spec"]["containers"].append({**first, "name": "late", **fields})
    return pod


async def states(stage: Stage, uid: str) -> dict[str, ContainerState]:
    seen = (await stage.runtime.observe(uid)).get(uid)
    return {c.name: c.state for c in seen.containers} if seen else {}


def has_ended(stage: Stage, uid: str) -> bool:
    return uid not in stage.admitted.state or stage.admitted.state[uid].state is PodState.FINISHED


@pytest.mark.parametrize("by", ["deletion", "eviction"])
async def test_the_other_containers_are_stopped_while_a_secret_is_still_read(tmp_path: Path, by: str) -> None:
    async with cleared(Stalled(tmp_path)) as stage:
        uid = stage.want(with_late(**FROM_SECRET), source="api")
        await stage.until(stage.asked.is_set)
        assert await states(stage, uid) == {"c": ContainerState.RUNNING}
        if by == "deletion":
            stage.desired.delete(uid)
        else:
            stage.podsync.loop.handle(PodEvicted(cause="memory", uid=uid, message="it is too large", grace_seconds=1))
        await stage.until(lambda: "StopPodSandbox" in stage.runtime.methods())
        assert stage.runtime.methods().count("CreateContainer") == 1
        assert ContainerState.RUNNING not in (await states(stage, uid)).values()
        warnings = [event.reason for event in stage.events.state.values() if event.type == "Warning"]
        assert warnings == []


async def test_a_sandbox_whose_runtime_class_is_still_read_is_not_begun(tmp_path: Path) -> None:
    async with cleared(Stalled(tmp_path)) as stage:
        uid = stage.want(a_pod(runtimeClassName="gvisor"), source="api")
        await stage.until(stage.asked.is_set)
        stage.desired.delete(uid)
        await stage.until(lambda: has_ended(stage, uid))
        stage.answer.set()
        await stage.network.settle()
        assert "RunPodSandbox" not in stage.runtime.methods()


async def test_the_other_containers_are_stopped_while_a_pull_secret_is_still_read(tmp_path: Path) -> None:
    async with cleared(Stalled(tmp_path, answered=1)) as stage:
        pod = with_late()
        pod["spec"]["imagePullSecrets"] = [{"name": "s"}]
        uid = stage.want(pod, source="api")
        await stage.until(stage.asked.is_set)
        assert await states(stage, uid) == {"c": ContainerState.RUNNING}
        stage.desired.delete(uid)
        await stage.until(lambda: "StopPodSandbox" in stage.runtime.methods())
        assert ContainerState.RUNNING not in (await states(stage, uid)).values()


async def test_a_container_that_the_runtime_was_asked_for_is_waited_for(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    async with cleared(Stalled(tmp_path, runtime=runtime)) as stage:
        uid = stage.want(a_pod(), source="api")
        hung = runtime.hang("CreateContainer")
        await stage.until(hung.reached.is_set)
        stage.desired.delete(uid)
        await stage.until(lambda: stage.admitted.state[uid].state is PodState.TERMINATING)
        await stage.network.settle()
        assert "StopPodSandbox" not in runtime.methods()
        runtime.clear_faults()
        await stage.until(lambda: has_ended(stage, uid))
        await stage.until(lambda: "RemoveContainer" in runtime.methods())
        assert await states(stage, uid) == {}
