"""The container runtime over gRPC: `shared.cri.interface.Runtime` for the real thing.

One call here is one CRI call with the kubelet's deadline, except `observe`. Retries, back-off and what a failure means
are the caller's.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence

from cri_api.v1 import api_pb2
from msgspec import to_builtins

from shared.cri.channel import CriChannel
from shared.cri.content_store import ContainerdContent
from shared.cri.decode import (
    LABEL_POD_NAME,
    LABEL_POD_NAMESPACE,
    decode_cgroup_driver,
    decode_conditions,
    decode_event,
    decode_features,
    decode_filesystem,
    decode_image,
    fill,
    fill_container,
    image_of,
)
from shared.cri.interface import (
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
from shared.cri.lists import Lists
from shared.cri.observe import Observer
from shared.cri.task_service import end_task
from shared.cri.usage import (
    MetricDescriptor,
    SandboxMetrics,
    SandboxStats,
    decode_descriptor,
    decode_metrics,
    decode_sandbox_stats,
)
from shared.metrics.registry import Registry
from shared.model.runtime import Container, RuntimePod, Sandbox
from shared.tracing.tracer import Tracer

KUBELET_API_VERSION = "0.1.0"  # what the kubelet names as its own version in Version (pods.md 0.1)


class CriRuntime:
    """A runtime at `endpoint` (`unix:///path`), its images at `image_endpoint` ("" = the same place).

    `request_timeout` is runtimeRequestTimeout in seconds: doubled for RunPodSandbox, added to the grace of
    StopContainer, not applied to PullImage. `pids`: whether observations name processes, which costs the runtime a
    verbose answer. `streams_lists`: whether lists of everything are read as streams, where the runtime has them
    (gate CRIListStreaming). `metrics` count the calls. Connects on the first call; may be built before a loop runs.
    """

    def __init__(
        self,
        endpoint: str,
        image_endpoint: str = "",
        request_timeout: float = 120.0,
        *,
        pids: bool = True,
        streams_lists: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        metrics: Registry | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._timeout = request_timeout
        self._channel = CriChannel(endpoint, metrics, tracer)
        same = image_endpoint in ("", endpoint)
        self._image_channel = self._channel if same else CriChannel(image_endpoint, metrics, tracer)
        self._lists = Lists(self._channel, request_timeout, streamed=streams_lists)
        self._image_lists = self._lists if same else Lists(self._image_channel, request_timeout, streamed=streams_lists)
        self._observer = Observer(self._channel, self._lists, request_timeout, monotonic, pids=pids)

    async def version(self) -> RuntimeVersion:
        """Return the name and versions of the runtime (CRI Version)."""
        request = api_pb2.VersionRequest(version=KUBELET_API_VERSION)
        answer = await self._channel.call(self._channel.runtime, "Version", request, self._timeout)
        return RuntimeVersion(
            name=answer.runtime_name, version=answer.runtime_version, api_version=answer.runtime_api_version
        )

    async def status(self) -> tuple[RuntimeCondition, ...]:
        """Return the runtime's conditions (CRI Status)."""
        answer = await self._channel.call(
            self._channel.runtime, "Status", api_pb2.StatusRequest(verbose=False), self._timeout
        )
        return decode_conditions(answer)

    async def features(self) -> RuntimeFeatures:
        """Return the runtime's handlers and features (CRI Status)."""
        answer = await self._channel.call(
            self._channel.runtime, "Status", api_pb2.StatusRequest(verbose=False), self._timeout
        )
        return decode_features(answer)

    async def runtime_config(self) -> str | None:
        """Return the cgroup driver of the runtime, "systemd" or "cgroupfs" (CRI RuntimeConfig); None = the runtime does
        not report it."""
        try:
            answer = await self._channel.call(
                self._channel.runtime, "RuntimeConfig", api_pb2.RuntimeConfigRequest(), self._timeout
            )
        except RuntimeCallError as error:
            if error.code == "Unimplemented":
                return None
            raise
        return decode_cgroup_driver(answer)

    async def update_runtime_config(self, pod_cidrs: str) -> None:
        """Announce these addresses for pods to the runtime (CRI UpdateRuntimeConfig)."""
        network = api_pb2.NetworkConfig(pod_cidr=pod_cidrs)
        request = api_pb2.UpdateRuntimeConfigRequest(runtime_config=api_pb2.RuntimeConfig(network_config=network))
        await self._channel.call(self._channel.runtime, "UpdateRuntimeConfig", request, self._timeout)

    async def observe(self, uid: str | None = None) -> dict[str, RuntimePod]:
        """Return all pods, or the one, by UID; absent = the runtime has nothing of it."""
        return await self._observer.observe(uid)

    async def uids_of(self, namespace: str, name: str) -> frozenset[str]:
        """Return the UIDs of the pods of this name (CRI ListPodSandbox)."""
        labels = {LABEL_POD_NAMESPACE: namespace, LABEL_POD_NAME: name}
        request = api_pb2.ListPodSandboxRequest(filter=api_pb2.PodSandboxFilter(label_selector=labels))
        answer = await self._channel.call(self._channel.runtime, "ListPodSandbox", request, self._timeout)
        return frozenset(entry.metadata.uid for entry in answer.items if entry.metadata.uid)

    async def inspect_sandbox(self, sandbox_id: str) -> Sandbox | None:
        """Return the sandbox, without its pid (CRI PodSandboxStatus); None = the runtime has it no more."""
        return await self._observer.inspect_sandbox(sandbox_id)

    async def inspect_container(self, container_id: str, sandbox_id: str) -> Container | None:
        """Return a container of this sandbox, without its pid (CRI ContainerStatus); None = the runtime has it no
        more."""
        return await self._observer.inspect_container(container_id, sandbox_id)

    async def run_pod_sandbox(self, config: Message, runtime_handler: str) -> str:
        """Make and start a sandbox, and return its id (CRI RunPodSandbox)."""
        request = api_pb2.RunPodSandboxRequest(runtime_handler=runtime_handler)
        fill("RunPodSandbox", request.config, config)
        with self._channel.metrics.sandbox(runtime_handler):
            answer = await self._channel.call(self._channel.runtime, "RunPodSandbox", request, 2 * self._timeout)
        return str(answer.pod_sandbox_id)

    async def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """Stop a sandbox and what runs in it, without grace (CRI StopPodSandbox)."""
        request = api_pb2.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        await self._channel.call(self._channel.runtime, "StopPodSandbox", request, self._timeout)

    async def remove_pod_sandbox(self, sandbox_id: str) -> None:
        """Remove a sandbox with its containers (CRI RemovePodSandbox)."""
        request = api_pb2.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        await self._channel.call(self._channel.runtime, "RemovePodSandbox", request, self._timeout)

    async def create_container(self, sandbox_id: str, config: Message, sandbox_config: Message) -> str:
        """Make a container, and return its id (CRI CreateContainer)."""
        request = api_pb2.CreateContainerRequest(pod_sandbox_id=sandbox_id)
        fill_container("CreateContainer", request.config, config)
        fill("CreateContainer", request.sandbox_config, sandbox_config)
        answer = await self._channel.call(self._channel.runtime, "CreateContainer", request, self._timeout)
        return str(answer.container_id)

    async def start_container(self, container_id: str) -> None:
        """Start a container (CRI StartContainer)."""
        request = api_pb2.StartContainerRequest(container_id=container_id)
        await self._channel.call(self._channel.runtime, "StartContainer", request, self._timeout)

    async def stop_container(self, container_id: str, timeout: int) -> None:
        """Stop a container, with `timeout` seconds between TERM and KILL (CRI StopContainer)."""
        request = api_pb2.StopContainerRequest(container_id=container_id, timeout=timeout)
        await self._channel.call(self._channel.runtime, "StopContainer", request, timeout + self._timeout)

    async def remove_container(self, container_id: str) -> None:
        """Remove a container (CRI RemoveContainer)."""
        request = api_pb2.RemoveContainerRequest(container_id=container_id)
        await self._channel.call(self._channel.runtime, "RemoveContainer", request, self._timeout)

    async def end_task(self, task_id: str) -> None:
        """Delete the task by containerd's own task service; kill the processes of one that runs first."""
        await end_task(self.endpoint, task_id)

    async def update_container_resources(self, container_id: str, resources: Message) -> None:
        """Give a container these resources (CRI UpdateContainerResources)."""
        request = api_pb2.UpdateContainerResourcesRequest(container_id=container_id)
        fill("UpdateContainerResources", request.linux, resources)
        await self._channel.call(self._channel.runtime, "UpdateContainerResources", request, self._timeout)

    async def update_pod_sandbox_resources(self, sandbox_id: str, resources: Message, overhead: Message) -> None:
        """Announce the resources of a pod to the runtime (CRI UpdatePodSandboxResources)."""
        request = api_pb2.UpdatePodSandboxResourcesRequest(pod_sandbox_id=sandbox_id)
        fill("UpdatePodSandboxResources", request.resources, resources)
        fill("UpdatePodSandboxResources", request.overhead, overhead)
        await self._channel.call(self._channel.runtime, "UpdatePodSandboxResources", request, self._timeout)

    async def reopen_container_log(self, container_id: str) -> None:
        """Have the runtime open the log of a container again (CRI ReopenContainerLog)."""
        request = api_pb2.ReopenContainerLogRequest(container_id=container_id)
        await self._channel.call(self._channel.runtime, "ReopenContainerLog", request, self._timeout)

    async def exec_sync(self, container_id: str, command: Sequence[str], timeout: int) -> ExecResult:
        """Run a command in a container to its end (CRI ExecSync). The runtime ends it after `timeout` seconds; 0 = no
        limit, and then this call has no deadline."""
        request = api_pb2.ExecSyncRequest(container_id=container_id, cmd=list(command), timeout=timeout)
        deadline = timeout + self._timeout if timeout else None
        answer = await self._channel.call(self._channel.runtime, "ExecSync", request, deadline)
        return ExecResult(exit_code=answer.exit_code, stdout=answer.stdout, stderr=answer.stderr)

    async def checkpoint_container(self, container_id: str, location: str, timeout: int) -> None:
        """Write the state of a container to an archive (CRI CheckpointContainer). `timeout` in seconds is at least the
        request timeout, for the runtime too."""
        seconds = max(timeout, int(self._timeout))
        request = api_pb2.CheckpointContainerRequest(container_id=container_id, location=location, timeout=seconds)
        await self._channel.call(self._channel.runtime, "CheckpointContainer", request, seconds)

    async def exec_url(self, container_id: str, command: Sequence[str], streams: StreamOptions) -> str:
        """Return the URL at which the command is streamed (CRI Exec)."""
        request = api_pb2.ExecRequest(container_id=container_id, cmd=list(command), **to_builtins(streams))
        return str((await self._channel.call(self._channel.runtime, "Exec", request, self._timeout)).url)

    async def attach_url(self, container_id: str, streams: StreamOptions) -> str:
        """Return the URL at which the container's own process is streamed (CRI Attach)."""
        request = api_pb2.AttachRequest(container_id=container_id, **to_builtins(streams))
        return str((await self._channel.call(self._channel.runtime, "Attach", request, self._timeout)).url)

    async def port_forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        """Return the URL at which connections are forwarded (CRI PortForward)."""
        request = api_pb2.PortForwardRequest(pod_sandbox_id=sandbox_id, port=list(ports))
        return str((await self._channel.call(self._channel.runtime, "PortForward", request, self._timeout)).url)

    async def image_status(self, image: str) -> ImageStatus | None:
        """Return an image by its name or id (CRI ImageStatus); None = the runtime does not have it."""
        request = api_pb2.ImageStatusRequest(image=api_pb2.ImageSpec(image=image))
        return decode_image(
            await self._image_channel.call(self._image_channel.image, "ImageStatus", request, self._timeout)
        )

    async def list_images(self) -> tuple[ImageStatus, ...]:
        """Return all images of the runtime, in its order (CRI ListImages)."""
        answer = await self._image_lists.whole(self._image_channel.image, "ListImages", api_pb2.ListImagesRequest())
        return tuple(image_of(image) for image in answer.images)

    async def pull_image(self, image: Message, sandbox_config: Message, auth: Message | None = None) -> str:
        """Pull an image, and return the runtime's reference of it (CRI PullImage). There is no deadline, because the
        time depends on the image."""
        request = api_pb2.PullImageRequest()
        fill("PullImage", request.image, image)
        fill("PullImage", request.sandbox_config, sandbox_config)
        if auth is not None:
            fill("PullImage", request.auth, auth)
        answer = await self._image_channel.call(self._image_channel.image, "PullImage", request, None)
        return str(answer.image_ref)

    async def remove_image(self, image_id: str) -> None:
        """Remove an image by its id (CRI RemoveImage)."""
        request = api_pb2.RemoveImageRequest(image=api_pb2.ImageSpec(image=image_id))
        await self._image_channel.call(self._image_channel.image, "RemoveImage", request, self._timeout)

    async def filesystems(self) -> RuntimeFilesystems:
        """Return the filesystems with images, and those with writable layers (CRI ImageFsInfo)."""
        answer = await self._image_channel.call(
            self._image_channel.image, "ImageFsInfo", api_pb2.ImageFsInfoRequest(), self._timeout
        )
        return RuntimeFilesystems(
            images=tuple(map(decode_filesystem, answer.image_filesystems)),
            containers=tuple(map(decode_filesystem, answer.container_filesystems)),
        )

    async def writable_layers(self) -> dict[str, FilesystemFiles]:
        """Return the writable layer of each container by its id (CRI ListContainerStats)."""
        request = api_pb2.ListContainerStatsRequest()
        answer = await self._lists.whole(self._channel.runtime, "ListContainerStats", request)
        return {
            stats.attributes.id: decode_filesystem(stats.writable_layer)
            for stats in answer.stats
            if stats.HasField("writable_layer")
        }

    async def sandbox_stats(self) -> tuple[SandboxStats, ...]:
        """Return what each pod sandbox and its containers use (CRI ListPodSandboxStats)."""
        request = api_pb2.ListPodSandboxStatsRequest()
        answer = await self._lists.whole(self._channel.runtime, "ListPodSandboxStats", request)
        return tuple(map(decode_sandbox_stats, answer.stats))

    async def metric_descriptors(self) -> tuple[MetricDescriptor, ...]:
        """Return the metrics that `sandbox_metrics` may have (CRI ListMetricDescriptors)."""
        request = api_pb2.ListMetricDescriptorsRequest()
        answer = await self._channel.call(self._channel.runtime, "ListMetricDescriptors", request, self._timeout)
        return tuple(map(decode_descriptor, answer.descriptors))

    async def sandbox_metrics(self) -> tuple[SandboxMetrics, ...]:
        """Return the samples of each pod sandbox and its containers (CRI ListPodSandboxMetrics)."""
        request = api_pb2.ListPodSandboxMetricsRequest()
        answer = await self._lists.whole(self._channel.runtime, "ListPodSandboxMetrics", request)
        return tuple(map(decode_metrics, answer.pod_metrics))

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """GetContainerEvents; one reader at a time, because runtimes share one channel among all readers."""
        return self._channel.stream(
            self._channel.runtime, "GetContainerEvents", api_pb2.GetEventsRequest(), decode_event
        )

    def content_store(self) -> ContainerdContent:
        """Return the content store that the images come into; it connects with its first request."""
        return ContainerdContent(self._image_channel.endpoint)

    async def close(self) -> None:
        """Close the connections."""
        self._lists.close()
        self._image_lists.close()
        await self._channel.close()
        if self._image_channel is not self._channel:
            await self._image_channel.close()
