"""podsync's calls over a fake runtime, without the core: one pod that runs, and what becomes of a call."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bus.messages.device_plugins import DeviceResource
from bus.messages.pleg import RuntimeHandler
from bus.messages.volume import MountedVolume, MountedVolumes
from services.podsync.adapters.calls.runtime_calls import PodView, RuntimeCalls, calls_over
from services.podsync.adapters.device_requests import DeviceRequests
from services.podsync.adapters.node_facts_reader import read_node_facts, read_node_resources
from services.podsync.adapters.pod.memory_volumes import MemoryVolumes
from services.podsync.adapters.pod.subpaths import Subpaths
from services.podsync.core.placement.pod_placement import NOT_PLACED
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import Call, CreateContainer
from shared.config.effective import EffectiveConfig
from shared.metrics.registry import Registry
from shared.model.objects import Object
from shared.model.runtime import Container, RuntimePod
from shared.podspec.hashing import container_hash
from tests.fakes.memory_bus import ManualClock, MemoryNetwork
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.no_cluster import NoCluster

UID = "u1"


class NoSubpaths(Subpaths):
    """A volume service that prepares no subpath."""

    def __init__(self) -> None:
        """There is no bus."""

    async def prepare(self, uid: str, container: Object, wanted: Mapping[int, str]) -> dict[int, str]:
        return {}

    async def release(self, uid: str, container: Object) -> None:
        return


_NO_SUBPATHS = NoSubpaths()


def a_pod(*containers: Object, **spec: Any) -> Object:
    """With these containers."""
    return {"metadata": {"name": "web", "namespace": "shop", "uid": UID}, "spec": {"containers": [*containers], **spec}}


def a_container(name: str = "c", **fields: Any) -> Object:
    """Of the one image there is."""
    return {"name": name, "image": "busybox:1", **fields}


class Performer:
    """The calls, and the pod they are about: every container of it is made and started by `run`."""

    def __init__(
        self,
        directory: Path,
        pod: Object,
        clock: ManualClock | None = None,
        subpaths: Subpaths = _NO_SUBPATHS,
        devices: DeviceRequests | None = None,
        volumes: Mapping[str, MountedVolume] | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.runtime = FakeRuntime(self.clock, images=["busybox:1"])
        config = EffectiveConfig(
            node_name="node1",
            root_dir=str(directory / "root"),
            run_dir=str(directory / "run"),
            log_dir=str(directory / "log"),
            cert_dir=str(directory / "pki"),
            pod_logs_dir=str(directory / "pods"),
            cgroups_per_qos=False,
        )
        self.calls: RuntimeCalls = calls_over(
            self.runtime,
            config,
            self.clock,
            Registry(),
            read_node_facts(config, read_node_resources(config), cgroup_v2=False),
            node=self,
            cluster=NoCluster(),
            subpaths=subpaths,
            volumes=MemoryVolumes(MemoryNetwork().bus("podsync")),
            devices=devices or DeviceRequests(MemoryNetwork().bus("podsync")),
            record=lambda event: None,
            watch_pull=lambda *_: nullcontext(),
        )
        self.pod = pod
        self.volumes = MountedVolumes(uid=UID, volumes=dict(volumes)) if volumes is not None else None
        self.placement = NOT_PLACED
        self.resources: dict[str, DeviceResource] = {}
        self.resources_known = True
        self.ids: dict[str, str] = {}
        self.sandbox = ""

    async def create(self) -> CallDone | CallFailed:
        """CreateContainer of container `c`, in a sandbox that is made first where there is none."""
        return await self.perform(await self.creation())

    async def creation(self) -> CreateContainer:
        """The call of `create`, decided for the pod as it is."""
        self.calls.directories.prepare("shop", "web", UID, ["c"])
        meta = {"name": "web", "namespace": "shop", "uid": UID}
        if not self.sandbox:
            self.sandbox = await self.runtime.run_pod_sandbox({"metadata": meta, "log_directory": "/nowhere"}, "")
        image = self.runtime.images["busybox:1"]
        return CreateContainer(
            uid=UID,
            container="c",
            attempt=0,
            spec_hash=container_hash(self.view().container("c")),
            sandbox_id=self.sandbox,
            sandbox_attempt=0,
            image=image,
            pod_ips=("10.0.0.2",),
        )

    async def run(self) -> None:
        """A sandbox, and all containers of the pod in it, started."""
        meta = {"name": "web", "namespace": "shop", "uid": UID}
        sandbox = {"metadata": meta, "labels": {"io.kubernetes.pod.uid": UID}, "log_directory": "/nowhere"}
        self.sandbox = await self.runtime.run_pod_sandbox(sandbox, "")
        for spec in self.pod["spec"].get("initContainers", []) + self.pod["spec"]["containers"]:
            name = spec["name"]
            message = {"metadata": {"name": name}, "image": {"image": "busybox:1"}, "labels": {}}
            message["labels"] = {"io.kubernetes.container.name": name, "io.kubernetes.pod.uid": UID}
            self.ids[name] = await self.runtime.create_container(self.sandbox, message, sandbox)
            await self.runtime.start_container(self.ids[name])
        self.runtime.calls.clear()

    def is_to_run(self, uid: str) -> bool:
        """As `NodeReads` for the calls: the pod is to run."""
        return True

    def active_pods(self) -> list[Object]:
        """The same: there is no other pod."""
        return [self.pod]

    def runtime_handlers(self) -> tuple[RuntimeHandler, ...] | None:
        """The same: the runtime has not reported any."""
        return None

    def shared_cpus(self) -> str:
        """Return "", with which every container runs on all CPUs."""
        return ""

    def devices(self) -> Mapping[str, DeviceResource]:
        """Return what the device plugins list."""
        return self.resources

    def devices_known(self) -> bool:
        """Return whether `devices` returns all of them."""
        return self.resources_known

    def view(self) -> PodView:
        """The pod as the service would show it to the calls."""
        return PodView(
            uid=UID,
            name="web",
            namespace="shop",
            pod=self.pod,
            volumes=self.volumes,
            placement=self.placement,
            sandbox_of=dict.fromkeys(self.ids.values(), self.sandbox),
            host_ips=("127.0.0.1",),
        )

    async def perform(self, call: Call) -> CallDone | CallFailed:
        """To its end."""
        return await self.calls.perform(call, self.view())

    def begin(self, call: Call) -> "asyncio.Task[CallDone | CallFailed]":
        """As a task of its own, which can be given up."""
        return asyncio.get_running_loop().create_task(self.perform(call))

    async def pass_time(self, seconds: float) -> None:
        """Timer by timer, on a virtual loop."""
        loop: Any = asyncio.get_running_loop()
        end = loop.time() + seconds
        await self.settle()
        while (left := end - loop.time()) > 0:
            self.clock.advance(min(max(loop.next_timer() - loop.time(), 0.000001), left))
            await self.settle()

    async def settle(self) -> None:
        """Everything that can go on without time passing has gone on."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def seen(self) -> RuntimePod:
        """The pod as the runtime has it."""
        return (await self.runtime.observe(UID))[UID]

    async def container(self, name: str) -> Container:
        """One of its containers, as the runtime has it."""
        return next(c for c in (await self.seen()).containers if c.name == name)

    def stops(self) -> dict[str, int]:
        """Name of container -> timeout of its StopContainer, in the order they were asked for."""
        names = {container_id: name for name, container_id in self.ids.items()}
        return {names[r["container_id"]]: r.get("timeout", 0) for r in self.runtime.requests("StopContainer")}


def ours() -> list[str]:
    """The names of the tasks that run besides the test's own."""
    return [t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()]
