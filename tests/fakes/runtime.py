"""A container runtime in memory: the same Protocol and refusals as containerd 1.6, and faults on demand.

Deterministic: ids, pids and addresses are counted, times come from the clock given. The contract tests hold it to what
a real containerd does. Nothing happens by itself: processes exit when a test calls for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cri_api.v1 import api_pb2
from msgspec.structs import asdict

from shared.cri.decode import fill, fill_container
from shared.cri.interface import (
    ContentStore,
    ExecResult,
    FilesystemFiles,
    ImageStatus,
    Message,
    RuntimeCallError,
    RuntimeCondition,
    RuntimeEvent,
    RuntimeFeatures,
    RuntimeFilesystems,
    RuntimeVersion,
    StreamOptions,
)
from shared.cri.usage import MetricDescriptor, SandboxMetrics, SandboxStats
from shared.model.runtime import Container, RuntimePod, Sandbox
from shared.time.clock import Clock, SystemClock
from tests.fakes.faults import Faults
from tests.fakes.runtime_world import RuntimeWorld

T = TypeVar("T")

READY_CONDITIONS = (
    RuntimeCondition(type="RuntimeReady", status=True, reason="", message=""),
    RuntimeCondition(type="NetworkReady", status=True, reason="", message=""),
)


@dataclass(frozen=True)
class Call:
    """One call as it came in. Request keys are those of the CRI request message."""

    method: str
    request: Message


class FakeRuntime(Faults, RuntimeWorld):
    """See the module. `images`: references that are present; `pullable`: that PullImage finds; `events`: whether
    GetContainerEvents works.

    Fault controls: `fail`, `delay`, `hang`, `clear_faults`, `reachable`, `conditions`. World controls:
    `exit_container`, `exit_sandbox`, `settle_exits`, `add_image`, `emit`, `break_events`. Records: `calls`, `requests`.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        images: Iterable[str] = (),
        pullable: Iterable[str] = (),
        events: bool = False,
        version: RuntimeVersion | None = None,
    ) -> None:
        Faults.__init__(self)
        RuntimeWorld.__init__(self, clock or SystemClock(), images=images, pullable=pullable)
        self.calls: list[Call] = []
        self.conditions: tuple[RuntimeCondition, ...] = READY_CONDITIONS
        self.reachable = True
        self.event_stream = events
        self.runtime_version = version or RuntimeVersion(name="containerd", version="1.6.20~ds1", api_version="v1")
        self.runtime_features = RuntimeFeatures()
        self.cgroup_driver: str | None = None  # what RuntimeConfig answers; None = it is not implemented
        # What ExecSync answers: given container id and command; may raise RuntimeCallError.
        self.execute: Callable[[str, tuple[str, ...]], ExecResult] = lambda container_id, command: ExecResult(
            exit_code=0
        )
        self.streaming_url = "http://127.0.0.1:1"  # where Exec, Attach and PortForward send their callers
        self.runtime_filesystems = RuntimeFilesystems(images=(FilesystemFiles(mountpoint="/", used=0),))
        self.layers: dict[str, FilesystemFiles] = {}
        self.stats: tuple[SandboxStats, ...] | None = None  # None = the runtime lacks the call
        self.sandbox_samples: tuple[SandboxMetrics, ...] | None = None  # the same
        self.descriptors: tuple[MetricDescriptor, ...] = ()
        self.has_sandbox_updates = False  # containerd 1.6 does not have UpdatePodSandboxResources
        self.content: ContentStore | None = None
        self.closed = False

    # -- records -------------------------------------------------------------------------------------------------

    def methods(self) -> list[str]:
        """The names of all calls that change something, in order (as the recordings have them)."""
        return [call.method for call in self.calls if call.method not in _READS]

    def requests(self, method: str) -> list[Message]:
        """The requests of one method, in order."""
        return [call.request for call in self.calls if call.method == method]

    # -- the Protocol --------------------------------------------------------------------------------------------

    async def version(self) -> RuntimeVersion:
        return await self._do("Version", {}, lambda: self.runtime_version)

    async def status(self) -> tuple[RuntimeCondition, ...]:
        return await self._do("Status", {}, lambda: self.conditions)

    async def features(self) -> RuntimeFeatures:
        return await self._do("Status", {}, lambda: self.runtime_features)

    async def runtime_config(self) -> str | None:
        return await self._do("RuntimeConfig", {}, lambda: self.cgroup_driver)

    async def update_runtime_config(self, pod_cidrs: str) -> None:
        request: Message = {"runtime_config": {"network_config": {"pod_cidr": pod_cidrs}}}
        await self._do("UpdateRuntimeConfig", request, lambda: None)

    async def observe(self, uid: str | None = None) -> dict[str, RuntimePod]:
        observed_at = self.clock.monotonic()
        return await self._do("Observe", {"uid": uid} if uid else {}, lambda: self._observed(uid, observed_at))

    async def uids_of(self, namespace: str, name: str) -> frozenset[str]:
        found = await self._do("Observe", {"name": name}, lambda: self._observed(None, 0.0))
        return frozenset(uid for uid, pod in found.items() if (pod.namespace, pod.name) == (namespace, name))

    async def inspect_sandbox(self, sandbox_id: str) -> Sandbox | None:
        return await self._do("Observe", {"pod_sandbox_id": sandbox_id}, lambda: self._sandbox(sandbox_id))

    async def inspect_container(self, container_id: str, sandbox_id: str) -> Container | None:
        return await self._do("Observe", {"container_id": container_id}, lambda: self._container(container_id))

    async def run_pod_sandbox(self, config: Message, runtime_handler: str) -> str:
        fill("RunPodSandbox", api_pb2.PodSandboxConfig(), config)
        request: Message = {"config": config, **({"runtime_handler": runtime_handler} if runtime_handler else {})}
        return await self._do("RunPodSandbox", request, lambda: self._run_sandbox(config, runtime_handler))

    async def stop_pod_sandbox(self, sandbox_id: str) -> None:
        await self._do("StopPodSandbox", {"pod_sandbox_id": sandbox_id}, lambda: self._stop_sandbox(sandbox_id))

    async def remove_pod_sandbox(self, sandbox_id: str) -> None:
        await self._do("RemovePodSandbox", {"pod_sandbox_id": sandbox_id}, lambda: self._remove_sandbox(sandbox_id))

    async def create_container(self, sandbox_id: str, config: Message, sandbox_config: Message) -> str:
        fill_container("CreateContainer", api_pb2.ContainerConfig(), config)
        fill("CreateContainer", api_pb2.PodSandboxConfig(), sandbox_config)
        request = {"pod_sandbox_id": sandbox_id, "config": config, "sandbox_config": sandbox_config}
        return await self._do("CreateContainer", request, lambda: self._create(sandbox_id, config, sandbox_config))

    async def start_container(self, container_id: str) -> None:
        await self._do("StartContainer", {"container_id": container_id}, lambda: self._start(container_id))

    async def stop_container(self, container_id: str, timeout: int) -> None:
        request: Message = {"container_id": container_id, **({"timeout": timeout} if timeout else {})}
        await self._do("StopContainer", request, lambda: self._stop(container_id))

    async def remove_container(self, container_id: str) -> None:
        await self._do("RemoveContainer", {"container_id": container_id}, lambda: self._remove(container_id))

    async def end_task(self, task_id: str) -> None:
        await self._do("EndTask", {"id": task_id}, lambda: self.left_tasks.discard(task_id))

    async def update_container_resources(self, container_id: str, resources: Message) -> None:
        fill("UpdateContainerResources", api_pb2.LinuxContainerResources(), resources)
        request = {"container_id": container_id, "linux": resources}
        await self._do("UpdateContainerResources", request, lambda: self._update(container_id, resources))

    async def update_pod_sandbox_resources(self, sandbox_id: str, resources: Message, overhead: Message) -> None:
        request: Message = {"pod_sandbox_id": sandbox_id, "resources": resources, "overhead": overhead}

        def refuse() -> None:
            if not self.has_sandbox_updates:
                what = "unknown method UpdatePodSandboxResources for service runtime.v1.RuntimeService"
                raise RuntimeCallError("UpdatePodSandboxResources", "Unimplemented", what)

        await self._do("UpdatePodSandboxResources", request, refuse)

    async def reopen_container_log(self, container_id: str) -> None:
        await self._do("ReopenContainerLog", {"container_id": container_id}, lambda: self.reopen_log(container_id))

    async def exec_sync(self, container_id: str, command: Sequence[str], timeout: int) -> ExecResult:
        request: Message = {
            "container_id": container_id,
            "cmd": list(command),
            **({"timeout": timeout} if timeout else {}),
        }

        def run() -> ExecResult:
            self.refuse_exec(container_id)
            return self.execute(container_id, tuple(command))

        return await self._do("ExecSync", request, run)

    async def checkpoint_container(self, container_id: str, location: str, timeout: int) -> None:
        request: Message = {"container_id": container_id, "location": location, "timeout": timeout}
        await self._do("CheckpointContainer", request, lambda: None)

    async def exec_url(self, container_id: str, command: Sequence[str], streams: StreamOptions) -> str:
        request: Message = {"container_id": container_id, "cmd": list(command), **_set(streams)}
        return await self._do("Exec", request, lambda: self._url("exec"))

    async def attach_url(self, container_id: str, streams: StreamOptions) -> str:
        request: Message = {"container_id": container_id, **_set(streams)}
        return await self._do("Attach", request, lambda: self._url("attach"))

    async def port_forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        request: Message = {"pod_sandbox_id": sandbox_id, **({"port": list(ports)} if ports else {})}
        return await self._do("PortForward", request, lambda: self._url("portforward"))

    def _url(self, kind: str) -> str:
        return f"{self.streaming_url}/{kind}/token"

    async def image_status(self, image: str) -> ImageStatus | None:
        return await self._do("ImageStatus", {"image": {"image": image}}, lambda: self.images.get(image))

    async def list_images(self) -> tuple[ImageStatus, ...]:
        return await self._do(
            "ListImages", {}, lambda: tuple({image.id: image for image in self.images.values()}.values())
        )

    async def pull_image(self, image: Message, sandbox_config: Message, auth: Message | None = None) -> str:
        request: Message = {"image": image, "sandbox_config": sandbox_config, **({"auth": auth} if auth else {})}
        return await self._do("PullImage", request, lambda: self._pull(image["image"]))

    async def remove_image(self, image_id: str) -> None:
        await self._do("RemoveImage", {"image": {"image": image_id}}, lambda: self._remove_image(image_id))

    def _remove_image(self, image_id: str) -> None:
        self.images = {name: image for name, image in self.images.items() if image_id not in (name, image.id)}

    async def filesystems(self) -> RuntimeFilesystems:
        return await self._do("ImageFsInfo", {}, lambda: self.runtime_filesystems)

    async def writable_layers(self) -> dict[str, FilesystemFiles]:
        untouched = FilesystemFiles(mountpoint="/", used=0, inodes_used=0)
        return await self._do(
            "ListContainerStats", {}, lambda: {key: self.layers.get(key, untouched) for key in self._containers}
        )

    async def sandbox_stats(self) -> tuple[SandboxStats, ...]:
        return await self._do("ListPodSandboxStats", {}, lambda: self._reported("ListPodSandboxStats", self.stats))

    async def metric_descriptors(self) -> tuple[MetricDescriptor, ...]:
        return await self._do("ListMetricDescriptors", {}, lambda: self.descriptors)

    async def sandbox_metrics(self) -> tuple[SandboxMetrics, ...]:
        method = "ListPodSandboxMetrics"
        return await self._do(method, {}, lambda: self._reported(method, self.sandbox_samples))

    def _reported(self, method: str, found: T | None) -> T:
        if found is None:
            raise RuntimeCallError(method, "Unimplemented", f"method {method} not implemented")
        return found

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        self.calls.append(Call("GetContainerEvents", {}))
        self._refuse_unreachable("GetContainerEvents")
        if not self.event_stream:
            raise RuntimeCallError("GetContainerEvents", "Unimplemented", "method GetContainerEvents not implemented")
        queue: asyncio.Queue[RuntimeEvent | RuntimeCallError] = asyncio.Queue()
        self._readers.append(queue)
        try:
            while True:
                event = await queue.get()
                if isinstance(event, RuntimeCallError):
                    raise event
                yield event
        finally:
            self._readers.remove(queue)

    def content_store(self) -> ContentStore | None:
        return self.content

    async def close(self) -> None:
        self.closed = True
        self.clear_faults()

    async def _do(self, method: str, request: Message, effect: Callable[[], T]) -> T:
        """One call: recorded, through its faults, in effect."""
        self.calls.append(Call(method, request))
        fault = self.next_fault(method)
        await asyncio.sleep(0)  # as a real call, never finished within the caller's turn
        if fault is not None and not fault.after:
            await self.suffer(method, fault)
        self._refuse_unreachable(method)
        result = effect()
        if fault is not None and fault.after:
            await self.suffer(method, fault)
        return result

    def _refuse_unreachable(self, method: str) -> None:
        if not self.reachable:
            raise RuntimeCallError(
                method,
                "Unavailable",
                'connection error: desc = "transport: Error while dialing: '
                'dial unix /run/fake.sock: connect: connection refused"',
            )


_READS = frozenset(
    {
        "Version",
        "Status",
        "RuntimeConfig",
        "Observe",
        "ImageStatus",
        "ListImages",
        "ImageFsInfo",
        "GetContainerEvents",
        "Exec",
        "Attach",
        "PortForward",
    }
)


def _set(streams: StreamOptions) -> Message:
    return {name: True for name, value in asdict(streams).items() if value}
