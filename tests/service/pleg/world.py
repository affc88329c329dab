"""pleg on the in-memory bus with a fake runtime, fake pidfds and virtual time, and a follower that keeps a record."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from bus.interface import Change, Deleted, Put
from bus.messages.beat import Beat
from bus.messages.cgroup_details import FoundCgroups, MachineInfo
from bus.messages.pleg import NodeObserved
from bus.messages.podsync import PodProbes, PodStatus
from bus.messages.streams import (
    NODE_IMAGES,
    NODE_OBSERVED,
    NODE_USAGE,
    PODS_PROBES,
    PODS_STATUS,
    PROBES_RESULTS,
    RUNTIME_PODS,
    events_of,
)
from bus.messages.usage import CgroupUsage, FilesystemUsage, NodeUsage, PodUsage, VolumeUsage
from services.frame.launch import Context
from services.frame.resumption import Resumption
from services.pleg.core.mountpoints import Mountpoints
from services.pleg.core.node_observation import MachineReading
from services.pleg.core.pod_files import DiskUse, PodFiles
from services.pleg.service import Pleg
from shared.config.effective import EffectiveConfig
from shared.cri.interface import Message
from shared.metrics.registry import Registry, Series
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, RuntimePod
from shared.time.clock import Clock
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.runtime import FakeRuntime
from tests.fakes.virtual_time import ended, pass_time, until, virtual_clock

IMAGE = "localhost/busybox:1"
MEMORY = 8 * 2**30
READING = MachineReading(
    memory_capacity=MEMORY,
    nodefs_capacity=100 * 2**30,
    cpus=2,
)


MACHINE = MachineInfo(
    cores=2,
    physical_cores=2,
    sockets=1,
    memory=MEMORY,
    swap=0,
    machine_id="",
    system_uuid="",
    boot_id="",
    kernel_version="",
    os_version="",
)


class StillUsage:
    """A host on which nothing changes; `node` and `pods` (by UID) can be replaced."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.node = NodeUsage(read_at=0.0, started_at=0.0, cgroup=CgroupUsage(time=0.0))
        self.pods: dict[str, PodUsage] = {}
        self.readings = 0  # of pods
        self.cgroup_readings: list[list[str]] = []  # UIDs of pods
        self.measured: list[str] = []  # UIDs of pods whose files were measured
        self.by_plugins = False  # pods have volumes that only plugins can measure
        self.endless: set[str] = set()  # UIDs of pods that make files ahead of those who count them
        self.growth = 1  # bytes in each turn
        self.ends_after: dict[str, int] = {}  # UID of such a pod -> turns after which it stops
        self.counted_seconds = 0.0  # of all turns of endless ones
        self.failing: set[str] = set()  # UIDs of pods whose files cannot be counted
        self.closed: list[str] = []  # UIDs of pods whose counts were closed
        self.hung: dict[str, asyncio.Event] = {}  # by UID of a pod: measuring its files ends once this is set

    async def watch_memory(self, node: NodeUsage, notify: Callable[[], None]) -> None:
        self.notify = notify

    async def read_node(self, mountpoints: Mountpoints | None) -> NodeUsage:
        return replace(self.node, read_at=self._clock.monotonic())

    async def read_pods(self, pods: Sequence[RuntimePod]) -> list[PodUsage]:
        self.readings += 1
        known = (self.pods.get(pod.uid) for pod in pods)
        return [replace(usage, read_at=self._clock.monotonic()) for usage in known if usage is not None]

    async def read_cgroups(self, pods: Sequence[RuntimePod], mountpoints: Mountpoints | None) -> FoundCgroups:
        self.cgroup_readings.append([pod.uid for pod in pods])
        return FoundCgroups(machine=MACHINE, cgroups=())

    def count_files(self, pod: PodUsage, *, volumes: bool) -> "CountedFiles":
        self.measured.append(pod.uid)
        return CountedFiles(self, pod.uid, len(self.measured), volumes)

    def close(self) -> None: ...


class CountedFiles:
    """The files of a pod: one volume, which uses as many bytes as its number. Those of a pod in `endless` use
    `growth` more after each turn, and are counted to their end in `ends_after` turns or never."""

    def __init__(self, host: StillUsage, uid: str, number: int, volumes: bool) -> None:
        self._host, self._uid, self._volumes = host, uid, volumes
        self._used, self._turns = 0 if uid in host.endless else number, 0

    async def count(self, seconds: float) -> bool:
        if (answers := self._host.hung.get(self._uid)) is not None:
            await answers.wait()
        if self._uid in self._host.failing:
            raise OSError("the disk is broken")
        if self._uid in self._host.endless:
            self._used, self._turns = self._used + self._host.growth, self._turns + 1
            await asyncio.sleep(seconds)
            self._host.counted_seconds += seconds
        return self._uid not in self._host.endless or self._turns == self._host.ends_after.get(self._uid)

    def sum_up(self) -> PodFiles:
        found = VolumeUsage(name="v", filesystem=FilesystemUsage(time=1.0, used=self._used), ephemeral=True)
        volumes = (found,) if self._volumes else ()
        by_plugins = self._host.by_plugins
        return PodFiles(time=1.0, logs={}, volumes=volumes, other=DiskUse(), measured_by_plugins=by_plugins)

    def close(self) -> None:
        self._host.closed.append(self._uid)


class FakePidfds:
    """Watches the fake runtime's pids; `refusal` is raised instead of watching."""

    def __init__(self, runtime: FakeRuntime, on_exit: Callable[[str], None]) -> None:
        self.watched: dict[str, int] = {}
        self.ever: list[str] = []
        self.refusal: OSError | None = None
        self.closed = False
        self._on_exit = on_exit
        self._running = runtime.running_pids
        runtime.on_exit.append(self._ended)

    def watch(self, key: str, pid: int) -> None:
        assert key not in self.watched
        if self.refusal is not None:
            raise self.refusal
        if pid not in self._running():
            raise ProcessLookupError(pid)
        self.watched[key] = pid
        self.ever.append(key)

    def unwatch(self, key: str) -> None:
        self.watched.pop(key, None)

    def close(self) -> None:
        self.watched.clear()
        self.closed = True

    def _ended(self, pid: int) -> None:
        for key in [key for key, watched in self.watched.items() if watched == pid]:
            del self.watched[key]
            asyncio.get_running_loop().call_soon(self._on_exit, key)


def counted(metrics: Registry, name: str, path: str = "/metrics") -> Series:
    """The series of a metric."""
    return next(series for family, series in metrics.collect(path) if family.name == name)


class PlegWorld:
    """Everything around one pleg."""

    def __init__(self, gates: dict[str, bool] | None = None, **runtime: Any) -> None:
        self.gates = dict(gates or {})
        self.network = MemoryNetwork(virtual_clock())
        self.clock = self.network.clock
        self.runtime = FakeRuntime(self.clock, images=[IMAGE], **runtime)
        self.machine = READING
        self.usage = StillUsage(self.clock)
        self.podsync = self.network.bus("podsync")
        self.statuses = self.podsync.own(PODS_STATUS)
        self.probed = self.podsync.own(PODS_PROBES)
        self.probes = self.podsync.follow(PROBES_RESULTS)
        self.images = self.podsync.follow(NODE_IMAGES)
        self.node_usage = self.podsync.follow(NODE_USAGE)
        self.events = self.podsync.follow(events_of("pleg"))
        self.pods_seen: list[Change[RuntimePod]] = []
        self.nodes_seen: list[NodeObserved] = []
        self.pods = self.podsync.follow(RUNTIME_PODS, self.pods_seen.append)
        self.node = self.podsync.follow(NODE_OBSERVED, self._on_node)
        self.beats: dict[str, Beat] = {}
        self.podsync.on_beat(lambda beat: self.beats.update({beat.service: beat}))
        self.pidfds: FakePidfds
        self.run_dir = tempfile.TemporaryDirectory(prefix="pleg")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> "PlegWorld":
        """Bring up both buses and pleg, and wait until nothing moves."""
        await self.podsync.start()
        await self.start_pleg()
        return self

    async def start_pleg(self) -> None:
        bus = self.network.bus("pleg")
        config = EffectiveConfig(
            node_name="node1",
            root_dir="/",
            run_dir=self.run_dir.name,
            log_dir="/var/log",
            cert_dir="/pki",
            container_runtime_endpoint="unix:///run/fake.sock",
            feature_gates=self.gates,
        )
        self.metrics = Registry("pleg")
        self.resumption = Resumption(lambda: self.clock.suspended)
        context = Context(
            "pleg", config, bus, self.clock, asyncio.Event(), metrics=self.metrics, resumption=self.resumption
        )

        def new_watches(on_exit: Callable[[str], None]) -> FakePidfds:
            self.pidfds = FakePidfds(self.runtime, on_exit)
            return self.pidfds

        pleg = Pleg(
            context,
            self.runtime,
            watches=new_watches,
            machine=self.read_machine,
            usage=self.usage,
        )
        self.pleg = pleg
        await bus.start()
        self._task = asyncio.create_task(pleg.run())
        await self.network.settle()
        await self.network.settle()

    async def read_machine(self, nodefs: str) -> MachineReading:
        return self.machine

    async def kill_pleg(self) -> None:
        self.network.kill("pleg")
        assert self._task is not None
        await ended(self._task)

    async def stop(self) -> None:
        """End pleg; its core must be sound and nothing of it left over."""
        self.pleg.observer.observation.validate()
        if self._task is not None:
            await ended(self._task)
        assert self.pidfds.closed and self.runtime.closed
        self.run_dir.cleanup()

    async def __aenter__(self) -> "PlegWorld":
        return await self.start()

    async def __aexit__(self, *failure: object) -> None:
        await self.stop()

    async def pass_time(self, seconds: float) -> None:
        await pass_time(self.network, seconds)

    async def until(self, holds: Callable[[], bool], within: float = 10.0) -> float:
        return await until(self.network, holds, within)

    # -- podsync's part ------------------------------------------------------------------------------------------

    def config(self, uid: str, attempt: int = 0) -> Message:
        labels = {"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": uid, "io.kubernetes.pod.namespace": "default"}
        metadata: Message = {"name": uid, "namespace": "default", "uid": uid}
        return {"metadata": {**metadata, **({"attempt": attempt} if attempt else {})}, "labels": labels}

    async def run_pod(self, uid: str) -> tuple[str, str]:
        """A sandbox with one running container, as podsync would make it: (sandbox id, container id)."""
        sandbox = await self.runtime.run_pod_sandbox(self.config(uid), "")
        return sandbox, await self.run_container(uid, sandbox)

    async def run_known_pod(self, uid: str) -> str:
        """As `run_pod`, and podsync shows the container; its id."""
        _, container = await self.run_pod(uid)
        self.publish_status(uid, container)
        await self.network.settle()
        return container

    async def run_container(self, uid: str, sandbox: str, attempt: int = 0) -> str:
        config: Message = {
            "metadata": {"name": "c", **({"attempt": attempt} if attempt else {})},
            "image": {"image": IMAGE},
        }
        container = await self.runtime.create_container(sandbox, config, self.config(uid))
        await self.runtime.start_container(container)
        return container

    def publish_status(self, uid: str, *container_ids: str, status: dict[str, Any] | None = None) -> None:
        self._version = getattr(self, "_version", 0) + 1
        published = PodStatus(
            uid=uid,
            name=uid,
            namespace="default",
            version=(1, self._version),
            status=status or {},
            container_ids=container_ids,
        )
        self.statuses.put(uid, published)

    def admit(self, uid: str, *, terminating: bool = False, **container: Any) -> None:
        """podsync publishes these probes of the container `c` of an admitted pod."""
        spec = {"containers": [{"name": "c", **container}]}
        self.probed.put(uid, PodProbes(name=uid, namespace="default", spec=spec, terminating=terminating))

    def end(self, uid: str) -> None:
        """The containers of the pod are gone."""
        self.probed.delete(uid)

    def show(self, uid: str, container_id: str, *, started: bool = True) -> None:
        """podsync's status speaks of this instance."""
        status = {"name": "c", "containerID": f"containerd://{container_id}", "started": started}
        self.publish_status(uid, container_id, status={"containerStatuses": [status]})

    # -- what the follower knows ---------------------------------------------------------------------------------

    def container(self, uid: str) -> Container:
        return self.pods.state[uid].containers[0]

    def puts(self, uid: str) -> list[RuntimePod]:
        return [change.value for change in self.pods_seen if isinstance(change, Put) and change.key == uid]

    def deletions(self) -> list[str]:
        return [change.key for change in self.pods_seen if isinstance(change, Deleted)]

    def looks(self) -> int:
        """How often single pods were looked at so far."""
        return sum(1 for request in self.runtime.requests("Observe") if request)

    def lists(self) -> int:
        """How often everything was listed so far."""
        return sum(1 for request in self.runtime.requests("Observe") if not request)

    def troubles(self) -> tuple[str, ...]:
        return self.beats["pleg"].troubles

    def _on_node(self, change: Change[NodeObserved]) -> None:
        if isinstance(change, Put):
            self.nodes_seen.append(change.value)
