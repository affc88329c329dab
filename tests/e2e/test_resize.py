"""Pods are resized through the API, on a real containerd and in real cgroups.

The API server is the double: the real one of the tests has no subresource `resize`.
"""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.kube import paths
from shared.kube.interface import PatchType
from shared.model.objects import Object
from shared.model.quantity import parse_quantity
from tests.fakes.api_http import HttpApiServer
from tests.fakes.api_resources import target_of
from tests.fakes.api_server import ADMIN
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import container, pod_of, status_of
from tests.support.agents.conditions import condition_of, is_ready
from tests.support.agents.world import World
from tests.support.installed.chosen_programs import chosen_cgroup_driver, scope_of
from tests.support.runtime.cgroup_values import cpu_share, memory, memory_usage, quota, share_of
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

MI = 1 << 20
HOLDS_40_MB = "x=$(head -c 40000000 /dev/zero | tr '\\0' a); sleep 1000000 & wait"


@dataclass
class Stage:
    """One agent that has joined the double."""

    api: HttpApiServer
    world: World
    driver: str

    def get(self, path: str) -> Object:
        found = self.api.do(lambda: self.api.server.get(path))
        assert found is not None, path
        return found

    async def until(self, name: str, holds: Callable[[Object], object], what: str) -> Object:
        """Wait until the API server's pod is as wanted; return it."""
        path = paths.pod("default", name)

        def found() -> Object | None:
            pod = self.get(path)
            return pod if holds(pod) else None

        pod: Object = await self.world.wait_for(found, f"pod {name} {what}")
        return pod

    def bind(self, pod: Object) -> None:
        """Create the pod, bound to the node."""
        self.api.do(lambda: self.api.server.bind(pod, NODE))

    async def run(self, pod: Object) -> Object:
        """Bind the pod to the node and wait until it is ready."""
        self.bind(pod)
        return await self.until(pod["metadata"]["name"], is_ready, "to be ready")

    async def resize(self, name: str, **spec: Any) -> int:
        """Send these fields of the spec to the pod's `resize`; return the pod's generation after it."""
        request = urllib.request.Request(
            f"{self.api.url}{paths.pod('default', name)}/resize",
            json.dumps({"spec": spec}).encode(),
            {"Authorization": f"Bearer {ADMIN}", "Content-Type": PatchType.STRATEGIC},
            method="PATCH",
        )
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=WAIT_SECONDS).read())
        return int(json.loads(answer)["metadata"]["generation"])

    async def resized(self, name: str, generation: int, resources: Object, container: str = "a") -> Object:
        """Wait until the status is of this generation, no resize waits or is in progress, and the container has these
        resources, or the pod where `container` is ""."""

        def done(pod: Object) -> bool:
            of = status_of(pod, container) if container else pod["status"]
            if _is_of(pod, generation) and of.get("resources") == resources:
                return not condition_of(pod, PENDING) and not condition_of(pod, IN_PROGRESS)
            return False

        return await self.until(name, done, "to be resized")

    async def delete(self, name: str) -> None:
        path = paths.pod("default", name)
        self.api.do(lambda: self.api.server.delete(path, 0))
        await self.world.wait_for(lambda: self.api.do(lambda: self.api.server.get(path)) is None, f"{name} to be gone")

    def cgroup(self, pod: Object, qos: str = "burstable") -> str:
        return self.level(*([qos] if qos else []), f"pod{pod['metadata']['uid']}")

    def level(self, *below: str) -> str:
        """The cgroup that these names have below kubepods."""
        parts = [self.world.home.path.name, "kubepods", *(name.replace("-", "_") for name in below)]
        if self.driver == "systemd":
            return "".join(f"/{'-'.join(parts[: depth + 1])}.slice" for depth in range(len(parts)))
        return "/" + "/".join((*parts[:2], *below))

    def own_cgroup(self, cgroup: str, instance: str) -> str:
        """The cgroup of a container, by its id, in that of its pod."""
        return f"{cgroup}/{scope_of(instance)}" if self.driver == "systemd" else f"{cgroup}/{instance}"

    def events(self, reason: str, name: str) -> set[str]:
        """The messages of the Events about this pod."""
        target = target_of(paths.events("default"))
        found = self.api.do(lambda: [event for _, event in self.api.server.store.below(target)])
        return {e["message"] for e in found if (e["reason"], e["involvedObject"]["name"]) == (reason, name)}


PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


def _is_of(pod: Object, generation: int) -> bool:
    return int(pod["status"].get("observedGeneration") or 0) >= generation


def given(cgroup: str) -> tuple[str, str, str]:
    """CPU share, CPU quota and limit of memory."""
    return cpu_share(cgroup), quota(cgroup), memory(cgroup)


def wanted(shares: int, cpu: int, limit: int) -> tuple[str, str, str]:
    return share_of(shares), str(cpu), str(limit * MI)


def instance(pod: Object, name: str) -> str:
    return str(status_of(pod, name)["containerID"]).partition("://")[2]


def amounts(cpu: str, limit: str, request: str = "16Mi") -> Object:
    """A Burstable container's requests and limits."""
    return {"requests": {"cpu": "50m", "memory": request}, "limits": {"cpu": cpu, "memory": limit}}


@asynccontextmanager
async def make_stage(directory: Path, **config: Any) -> AsyncIterator[Stage]:
    """An agent with these fields of the KubeletConfiguration, whose node is ready."""
    with HttpApiServer() as api:
        kubeconfig = directory / "kubeconfig"
        api.write_kubeconfig(kubeconfig, NODE)
        async with World(config=config, flags=(f"--kubeconfig={kubeconfig}",)) as world:
            stage = Stage(api, world, chosen_cgroup_driver())

            def ready() -> bool:
                node = api.do(lambda: api.server.get(paths.node(NODE)))
                return node is not None and is_ready(node)

            await world.wait_for(ready, "the node to be ready")
            yield stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with make_stage(tmp_path_factory.mktemp("resize")) as made:
        yield made


async def test_running_containers_get_what_their_pod_lists_without_a_restart(stage: Stage) -> None:
    both = [container(name, resources=amounts("100m", "32Mi")) for name in ("a", "b")]
    pod = await stage.run(pod_of("both", *both))
    cgroup, before = stage.cgroup(pod), {name: instance(pod, name) for name in ("a", "b")}
    assert given(cgroup) == wanted(102, 20_000, 64)
    for cpu, limit, pod_cpu, pod_limit in (("300m", "96Mi", 40_000, 128), ("200m", "48Mi", 30_000, 80)):
        generation = await stage.resize("both", containers=[{"name": "a", "resources": amounts(cpu, limit)}])
        pod = await stage.resized("both", generation, amounts(cpu, limit))
        assert status_of(pod, "a")["allocatedResources"] == amounts(cpu, limit)["requests"]
        assert given(cgroup) == wanted(102, pod_cpu, pod_limit)
        assert given(stage.own_cgroup(cgroup, before["a"])) == wanted(51, pod_cpu - 10_000, pod_limit - 32)
        assert given(stage.own_cgroup(cgroup, before["b"])) == wanted(51, 10_000, 32)
    assert {name: instance(pod, name) for name in ("a", "b")} == before
    assert [status_of(pod, name)["restartCount"] for name in ("a", "b")] == [0, 0]
    for reason in ("ResizeStarted", "ResizeCompleted"):
        await stage.world.wait_for(lambda reason=reason: len(stage.events(reason, "both")) == 2, reason)
    await stage.delete("both")


async def test_a_container_is_restarted_where_its_policy_asks_for_it(stage: Stage) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    pod = await stage.run(pod_of("policy", container("a", resources=amounts("100m", "32Mi"), resizePolicy=policy)))
    first = instance(pod, "a")
    generation = await stage.resize("policy", containers=[{"name": "a", "resources": amounts("200m", "32Mi")}])
    pod = await stage.resized("policy", generation, amounts("200m", "32Mi"))
    assert instance(pod, "a") == first
    generation = await stage.resize("policy", containers=[{"name": "a", "resources": amounts("200m", "64Mi")}])
    await stage.until("policy", lambda p: status_of(p, "a").get("restartCount") == 1 and is_ready(p), "to be restarted")
    pod = await stage.resized("policy", generation, amounts("200m", "64Mi"))
    assert instance(pod, "a") != first
    assert given(stage.own_cgroup(stage.cgroup(pod), instance(pod, "a"))) == wanted(51, 20_000, 64)
    assert given(stage.cgroup(pod)) == wanted(51, 20_000, 64)
    await stage.delete("policy")


async def test_a_limit_of_memory_is_not_set_below_what_is_in_use(stage: Stage) -> None:
    pod = await stage.run(pod_of("large", container("a", HOLDS_40_MB, resources=amounts("500m", "128Mi"))))
    cgroup = stage.cgroup(pod)
    own = stage.own_cgroup(cgroup, instance(pod, "a"))
    await stage.world.wait_for(lambda: memory_usage(own) > 38 * MI, "the memory to be in use")
    await stage.resize("large", containers=[{"name": "a", "resources": amounts("500m", "24Mi")}])
    pod = await stage.until("large", lambda p: condition_of(p, IN_PROGRESS).get("reason") == "Error", "to have failed")
    message = condition_of(pod, IN_PROGRESS)["message"]
    assert message.startswith("cannot decrease memory limits: [attempting to set pod memory limit (25165824) below")
    assert 'attempting to set container "a" memory limit (25165824) below current usage (' in message
    assert (memory(cgroup), memory(own)) == (str(128 * MI), str(128 * MI))
    assert status_of(pod, "a")["resources"]["limits"]["memory"] == "128Mi"
    generation = await stage.resize("large", containers=[{"name": "a", "resources": amounts("500m", "96Mi")}])
    pod = await stage.resized("large", generation, amounts("500m", "96Mi"))
    assert (memory(cgroup), memory(own)) == (str(96 * MI), str(96 * MI))
    assert status_of(pod, "a")["restartCount"] == 0
    await stage.delete("large")


async def test_what_does_not_fit_is_refused_or_waits_until_there_is_room(stage: Stage) -> None:
    allocatable = parse_quantity(stage.get(paths.node(NODE))["status"]["allocatable"]["cpu"]).milli()

    def requests(milli: int) -> Object:
        return {"requests": {"cpu": f"{milli}m", "memory": "16Mi"}}

    await stage.run(pod_of("neighbour", container("a", resources=requests(allocatable - 300))))
    pod = await stage.run(pod_of("grows", container("a", resources=requests(100))))
    cgroup = stage.cgroup(pod)
    await stage.resize("grows", containers=[{"name": "a", "resources": requests(allocatable + 100)}])
    pod = await stage.until("grows", lambda p: condition_of(p, PENDING).get("reason") == "Infeasible", "to be refused")
    assert condition_of(pod, PENDING)["message"] == (
        f"Node didn't have enough capacity: cpu, requested: {allocatable + 100}, capacity: {allocatable}"
    )
    generation = await stage.resize("grows", containers=[{"name": "a", "resources": requests(500)}])
    pod = await stage.until("grows", lambda p: condition_of(p, PENDING).get("reason") == "Deferred", "to wait")
    assert cpu_share(cgroup) == share_of(102)
    assert status_of(pod, "a")["resources"] == requests(100)
    await stage.delete("neighbour")
    pod = await stage.resized("grows", generation, requests(500))
    assert cpu_share(cgroup) == share_of(512)
    assert cpu_share(stage.own_cgroup(cgroup, instance(pod, "a"))) == share_of(512)
    await stage.delete("grows")


async def test_a_podsync_that_is_killed_between_two_writes_ends_where_it_would_have_ended(stage: Stage) -> None:
    pod = await stage.run(pod_of("killed", container("a", resources=amounts("100m", "32Mi"))))
    cgroup, first = stage.cgroup(pod), instance(pod, "a")
    for cpu, limit, micro, mebi in (("300m", "96Mi", 30_000, 96), ("200m", "64Mi", 20_000, 64)):
        stage.world.crash_at("podsync.resize.written")
        generation = await stage.resize("killed", containers=[{"name": "a", "resources": amounts(cpu, limit)}])
        await stage.world.wait_for(lambda: stage.world.crashed, "podsync to be killed")
        pod = await stage.resized("killed", generation, amounts(cpu, limit))
        assert given(cgroup) == given(stage.own_cgroup(cgroup, first)) == wanted(51, micro, mebi)
        assert (instance(pod, "a"), status_of(pod, "a")["restartCount"]) == (first, 0)
    await stage.delete("killed")


async def test_the_node_declares_the_resize_of_a_pod_and_of_init_containers_and_does_them(stage: Stage) -> None:
    declared = stage.get(paths.node(NODE))["status"]["declaredFeatures"]
    assert {"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"} <= set(declared)
    init = container("i", "true", resources={"requests": {"cpu": "20m"}})
    level = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
    pod = await stage.run(pod_of("level", container("a"), initContainers=[init], resources=level))
    cgroup = stage.cgroup(pod)
    own = stage.own_cgroup(cgroup, instance(pod, "a"))
    assert given(cgroup) == wanted(102, 20_000, 64) and (quota(own), memory(own)) == ("20000", str(64 * MI))
    larger = {"requests": {"cpu": "200m", "memory": "32Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"}}
    more = [{"name": "i", "resources": {"requests": {"cpu": "30m"}}}]
    generation = await stage.resize("level", resources=larger, initContainers=more)
    pod = await stage.resized("level", generation, larger, container="")
    assert given(cgroup) == wanted(204, 30_000, 96) and (quota(own), memory(own)) == ("30000", str(96 * MI))
    assert status_of(pod, "a")["restartCount"] == 0
    await stage.delete("level")
