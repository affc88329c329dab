"""Has what every call of podsync uses: runtime, node facts, directories, turns, and the observation of a pod.
Decides nothing; `building`, `image_calls`, `hooks` and `stopping` carry out the calls with it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec

from bus.messages.device_plugins import DeviceResource
from bus.messages.event import KubeEvent
from bus.messages.pleg import RuntimeHandler
from bus.messages.resource_claims import PodClaims
from bus.messages.volume import MountedVolumes
from services.podsync.adapters.calls.call_slots import CallPriority, CallSlots
from services.podsync.adapters.cluster_reads import ClusterReads
from services.podsync.adapters.device_requests import DeviceRequests
from services.podsync.adapters.images.image_pulls import ImagePulls
from services.podsync.adapters.node_facts_reader import HostFiles
from services.podsync.adapters.pod.env_files import MAX_AT_ONCE, read_env_files
from services.podsync.adapters.pod.memory_volumes import MemoryVolumes
from services.podsync.adapters.pod.pod_directories import PodDirectories
from services.podsync.adapters.pod.subpaths import Subpaths
from services.podsync.adapters.pod.user_namespaces import UserNamespaces
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.container_mounts import MountedVolume
from services.podsync.core.cri.dns import resolv_conf_warnings
from services.podsync.core.cri.environment import EnvFiles, environment_files
from services.podsync.core.cri.runtime_handlers import for_handler, needs_handler_features
from services.podsync.core.cri.sandbox_config import sandbox_config
from services.podsync.core.cri.security_context import refuse_user_namespace
from services.podsync.core.cri.user_namespaces import Mappings, needs_user_namespace
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement
from services.podsync.core.pod.allocation import Allocation
from shared.cri.interface import Message, Runtime, RuntimeCallError
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.runtime import Container, RuntimePod
from shared.podspec.containers import find_container, is_large
from shared.process.deadlines import WorkThreads
from shared.time.clock import Clock

T = TypeVar("T")

ABSENT = frozenset({"NotFound"})


class PodView(msgspec.Struct, frozen=True):
    """Has what a call uses of its pod, as it was when the call began."""

    uid: str
    name: str
    namespace: str
    pod: Object
    volumes: MountedVolumes | None
    claims: PodClaims | None = None
    needed_claims: tuple[str, ...] = ()  # names within the pod of the resource claims that it needs
    allocation: Allocation | None = None  # from the record; None = what the spec lists
    placement: PodPlacement = NOT_PLACED  # from the record
    static: bool = True  # from any source but the API
    quiet: bool = False  # nothing of the pod is known to run, so a call that starts one thing changes nothing else
    sandbox_of: Mapping[str, str] = msgspec.field(default_factory=dict)  # container id -> id of its sandbox
    host_ips: tuple[str, ...] = ()  # the node's, as the pod's status shows them
    resources: Mapping[str, Any] = msgspec.field(default_factory=dict)  # of the pod, as its status shows them

    @property
    def description(self) -> str:
        """`<name>_<namespace>(<uid>)`, as in kubelet messages."""
        return f"{self.name}_{self.namespace}({self.uid})"

    def container(self, name: str) -> Object:
        """Return the spec of one container. Raises ContainerConfigError."""
        found = find_container(self.pod, name)
        if found is not None:
            return dict(found[1])
        raise ContainerConfigError(f"the pod has no container {name} any more")


class NodeReads(Protocol):
    """Reads from `PodSync` what calls need when they need it, for it may have changed since they began."""

    def is_to_run(self, uid: str) -> bool: ...
    def active_pods(self) -> list[Object]: ...
    def runtime_handlers(self) -> tuple[RuntimeHandler, ...] | None: ...
    def shared_cpus(self) -> str: ...
    def devices(self) -> Mapping[str, DeviceResource]: ...
    def devices_known(self) -> bool: ...


# Entered while an image is pulled: the pod, the name of its container ("" = for a volume), the image.
WatchPull = Callable[[Object, str, str], AbstractContextManager[None]]


class CallPartError(Exception):
    """A part of the call failed that has an event of its own: `reason` is the event's (pods.md 13.3)."""

    def __init__(self, reason: str, error: Exception) -> None:
        self.reason = reason
        self.code = error.code if isinstance(error, RuntimeCallError) else ""
        self.description = error.description if isinstance(error, RuntimeCallError) else str(error)
        super().__init__(str(error))


class PodEndsError(Exception):
    """The pod is to end, and a call that builds it was not sent yet."""


class SpecChangedError(Exception):
    """The pod's spec changed after the call was decided and before it began: the core decides again."""


@dataclass(kw_only=True)
class PodOperations:
    """Has the adapters and node facts that all calls share; a process has one instance."""

    runtime: Runtime
    pulls: ImagePulls
    facts: NodeFacts
    directories: PodDirectories
    clock: Clock
    resolv_conf: str
    user_namespaces: UserNamespaces
    node: NodeReads
    cluster: ClusterReads
    subpaths: Subpaths
    volumes: MemoryVolumes
    devices: DeviceRequests
    record: Callable[[KubeEvent], object]  # an Event that is not about a pod
    watch_pull: WatchPull
    slots: CallSlots = field(default_factory=CallSlots)
    pre_stops: dict[str, "asyncio.Task[bool]"] = field(default_factory=dict)  # container id -> its hook, while it runs
    _reading: dict[str, asyncio.Timeout] = field(default_factory=dict)  # UID of the pod -> what ends its wait
    _host_files: HostFiles = field(default_factory=HostFiles)
    _env_file_threads: WorkThreads = field(default_factory=lambda: WorkThreads(MAX_AT_ONCE, "environment files"))

    def facts_now(self) -> NodeFacts:
        """Return the node's facts with its files as they are now."""
        return self._host_files.add_to(self.facts, self.resolv_conf)

    def record_node_event(self, reason: str, message: str) -> None:
        """Record a Warning event about our Node."""
        self.record(KubeEvent(type="Warning", reason=reason, message=message, kind="Node", name=self.facts.node_name))

    def record_resolv_conf_events(self) -> None:
        """Record Warning events about what pods do not get of the node's name resolution; called once per process."""
        for message in resolv_conf_warnings(self.facts_now(), self.resolv_conf):
            self.record_node_event("CheckLimitsForResolvConf", message)

    def facts_with_placement(self, view: PodView) -> NodeFacts:
        """Return the node's facts with the CPUs and NUMA nodes of the pod, and the CPUs that are shared now."""
        return replace(self.facts_now(), placement=view.placement, shared_cpus=self.node.shared_cpus())

    async def facts_of(self, view: PodView) -> NodeFacts:
        """Return the node's facts with what the pod was given, and with what its runtime handler can do. Raises
        SandboxConfigError, PodEndsError."""
        facts = self.facts_with_placement(view)
        if not needs_handler_features(view.pod):
            return facts
        return for_handler(facts, self.node.runtime_handlers(), await self.runtime_handler(view))

    async def runtime_handler(self, view: PodView) -> str:
        """Return the handler that the pod's RuntimeClass names, "" = the default one. Raises SandboxConfigError,
        PodEndsError."""
        async with self.reading(view):
            return await self.cluster.runtime_handler(view.pod)

    async def mappings(self, view: PodView) -> Mappings | None:
        """Return the ids of the pod's user namespace, and allocate them at the first call; None = the pod has the
        node's namespace. Raises SandboxConfigError, PodEndsError."""
        if not needs_user_namespace(view.pod):
            return None
        if mappings := self.user_namespaces.find(view.uid):
            return mappings
        refuse_user_namespace(view.pod, await self.facts_of(view))
        return await asyncio.to_thread(self.user_namespaces.allocate, view.uid)

    async def env_files(self, container: Object, volumes: Mapping[str, MountedVolume]) -> EnvFiles:
        """Read the environment files that the container names, in threads of their own: a slow volume delays no save of
        a record."""
        if not environment_files(container):
            return {}
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._env_file_threads, read_env_files, container, volumes)

    async def sandbox_message(self, view: PodView, attempt: int) -> Message:
        """Return the sandbox's configuration, for RunPodSandbox and again for CreateContainer and PullImage. Raises
        SandboxConfigError, PodEndsError."""
        mappings, facts = await self.mappings(view), await self.facts_of(view)
        groups = volume_groups(view)
        return await self.build(
            view,
            lambda: sandbox_config(view.pod, facts=facts, attempt=attempt, mappings=mappings, volume_groups=groups),
        )

    async def build(self, view: PodView, make: Callable[[], T], *, large: bool = False) -> T:
        """Return what `make` returns. For a large pod, or with `large`, it runs in a thread, so that other pods go on.
        Raises what `make` raises."""
        return await asyncio.to_thread(make) if large or is_large(view.pod) else make()

    @asynccontextmanager
    async def turn(self, rank: CallPriority, view: PodView) -> AsyncIterator[None]:
        """Run the block in a turn of the runtime. Raises PodEndsError: the turn may come late, and nothing is begun for
        a pod that is to end."""
        async with self.slots.turn(rank):
            if not self.node.is_to_run(view.uid):
                raise PodEndsError
            yield

    @asynccontextmanager
    async def reading(self, view: PodView) -> AsyncIterator[None]:
        """Run a block that reads from sources or a volume what the pod's call needs before its runtime requests. The
        block is cancelled when the pod is to end, see `end_reads`. Raises PodEndsError."""
        if not self.node.is_to_run(view.uid):
            raise PodEndsError
        try:
            async with asyncio.timeout(None) as wait:
                self._reading[view.uid] = wait
                try:
                    yield
                finally:
                    self._reading.pop(view.uid, None)
        except TimeoutError:
            if wait.expired():
                raise PodEndsError from None
            raise

    def end_reads(self, uid: str) -> None:
        """Cancel what the pod's call is reading, because the pod is to end."""
        if (wait := self._reading.pop(uid, None)) is not None:
            wait.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """End the hooks that outlived the stop that began them, and begin no more reads."""
        self._env_file_threads.shutdown(wait=False, cancel_futures=True)
        hooks = list(self.pre_stops.values())
        for hook in hooks:
            hook.cancel()
        await asyncio.gather(*hooks, return_exceptions=True)

    async def look(self, uid: str) -> RuntimePod:
        """List the pod in the runtime; where the runtime has nothing of it, the result is empty, with the time of the
        list."""
        before = self.clock.monotonic()
        seen = await self.runtime.observe(uid)
        return seen.get(uid) or RuntimePod(uid=uid, name="", namespace="", observed_at=before)

    async def uids_of(self, view: PodView) -> frozenset[str]:
        """Return the UIDs of the pods of this name that the runtime has."""
        return await self.runtime.uids_of(view.namespace, view.name)

    async def inspect_containers(self, view: PodView, *container_ids: str) -> tuple[Container, ...]:
        """Return these containers as they are now, without those that the runtime has no more."""
        known = [(container_id, view.sandbox_of.get(container_id, "")) for container_id in container_ids]
        inspections = (self.runtime.inspect_container(c, sandbox) for c, sandbox in known if sandbox)
        return tuple(container for container in await asyncio.gather(*inspections) if container is not None)


async def unless_absent(request: Awaitable[Any]) -> None:
    """Await a request to stop or remove something; that it is gone already is a success. Raises RuntimeCallError."""
    try:
        await request
    except RuntimeCallError as error:
        if error.code not in ABSENT:
            raise


def volume_groups(view: PodView) -> tuple[int, ...]:
    """Return the group ids that the pod's PersistentVolumes give to its processes."""
    volumes = view.volumes.volumes.values() if view.volumes else ()
    return tuple(dict.fromkeys(volume.group for volume in volumes if volume.group is not None))
