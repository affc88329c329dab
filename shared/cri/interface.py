"""The calls of the agent to a container runtime: CRI v1 in the agent's own types.

Messages that podsync decides (sandbox, container, image) travel as plain dicts with proto field names, zero values
absent, so that the pure core can build them and tests can compare them with recordings; the client turns them into
protobuf. Implemented by `shared.cri.client` and, under the same contract tests, by the fake runtime of the tests.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from shared.cri.usage import MetricDescriptor, SandboxMetrics, SandboxStats
from shared.model.runtime import Container, RuntimePod, Sandbox

Message = dict[str, Any]  # a CRI message: proto field names, enums by name, 64-bit integers as int, no zero values


class RuntimeCallError(Exception):
    """A CRI call failed. `code` is gRPC's name in the kubelet's spelling (NotFound, Unavailable, DeadlineExceeded …).

    `str()` is the kubelet's text, `rpc error: code = <code> desc = <desc>`, or the bare description for code Unknown.
    """

    def __init__(self, method: str, code: str, description: str) -> None:
        self.method, self.code, self.description = method, code, description
        super().__init__(description if code == "Unknown" else f"rpc error: code = {code} desc = {description}")


class PartialObservationError(RuntimeCallError):
    """An observation of everything that got an error at some pods: those are `unseen`, which is neither there nor gone.

    `pods` is what could be seen; method, code and description are those of the first error.
    """

    def __init__(self, first: RuntimeCallError, pods: dict[str, RuntimePod], unseen: frozenset[str]) -> None:
        super().__init__(first.method, first.code, first.description)
        self.pods, self.unseen = pods, unseen


class RuntimeVersion(Struct, frozen=True, kw_only=True):
    """CRI Version: name as used in container ids of the API (`containerd`), versions as the runtime reports them."""

    name: str
    version: str
    api_version: str


class RuntimeCondition(Struct, frozen=True, kw_only=True):
    """One condition of CRI Status (RuntimeReady, NetworkReady)."""

    type: str
    status: bool
    reason: str
    message: str


class ImageStatus(Struct, frozen=True, kw_only=True):
    """CRI ImageStatus of an image that is present."""

    id: str
    size: int
    repo_tags: tuple[str, ...] = ()
    repo_digests: tuple[str, ...] = ()
    uid: int | None = None  # numeric user of the image, None when not set
    username: str = ""
    pinned: bool = False  # the runtime asks that it is never removed


class ExecResult(Struct, frozen=True, kw_only=True):
    """Has what a command of CRI ExecSync wrote, as far as the runtime kept it, and how it ended."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


class StreamOptions(Struct, frozen=True, kw_only=True):
    """Says which streams CRI Exec and Attach connect. With a tty stderr is part of stdout: runtimes refuse both."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class HandlerFeatures(Struct, frozen=True, kw_only=True):
    """Has the features of one runtime handler in CRI Status; name "" = the default handler."""

    name: str
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


class RuntimeFeatures(Struct, frozen=True, kw_only=True):
    """Says what the runtime can do, by CRI Status; None = the runtime does not report it (runtimes older than the
    fields)."""

    handlers: tuple[HandlerFeatures, ...] | None = None  # sorted by name
    supplemental_groups_policy: bool | None = None
    mount_options: bool = False  # it takes options of a container's mounts


class FilesystemFiles(Struct, frozen=True, kw_only=True):
    """Has what files of the runtime use on the filesystem at `mountpoint`; None = not reported."""

    mountpoint: str
    used: int | None = None  # bytes
    inodes_used: int | None = None


class RuntimeFilesystems(Struct, frozen=True, kw_only=True):
    """Has the answer of CRI ImageFsInfo. A runtime before CRI of Kubernetes 1.29 reports no filesystems of writable
    layers."""

    images: tuple[FilesystemFiles, ...] = ()
    containers: tuple[FilesystemFiles, ...] = ()


class RuntimeEvent(Struct, frozen=True, kw_only=True):
    """One GetContainerEvents message: a hint that something happened to this pod, nothing more."""

    pod_uid: str
    container_id: str
    type: str


class Ingest(Struct, frozen=True, kw_only=True):
    """A blob that is being fetched; `offset`: the bytes that are there."""

    digest: str
    offset: int


class Blob(Struct, frozen=True, kw_only=True):
    """A complete blob of the content store. `created_at`: seconds since the epoch."""

    digest: str
    size: int
    created_at: float
    labels: dict[str, str]


class ContentStoreError(Exception):
    """A request to the content store failed. `code`: Go's name; `Unimplemented` = the runtime has no such store."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(f"{code}: {description}")
        self.code = code


class ContentStore(Protocol):
    """What is read of the runtime's content store. Each request raises ContentStoreError, at the latest after 2 s."""

    async def ingests(self) -> tuple[Ingest, ...]:
        """Return the blobs that are being fetched, of all images."""
        ...

    async def blobs(self, host: str, repository: str) -> tuple[Blob, ...]:
        """Return the blobs fetched from this repository; `host` has no port."""
        ...

    async def has(self, digest: str) -> bool:
        """Return whether the blob is complete."""
        ...

    async def read(self, digest: str, limit: int) -> bytes:
        """Return the blob's first `limit` bytes."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Runtime(Protocol):
    """The calls. Each raises RuntimeCallError: code Unavailable without a runtime, DeadlineExceeded after the kubelet's
    deadline (pods.md 0.1), InvalidArgument for a message that is not CRI's. Ids are the runtime's bare ids."""

    async def version(self) -> RuntimeVersion:
        """Return the name and versions of the runtime (CRI Version)."""
        ...

    async def status(self) -> tuple[RuntimeCondition, ...]:
        """Return the runtime's conditions in its order (CRI Status)."""
        ...

    async def features(self) -> RuntimeFeatures:
        """Return what the runtime and its handlers can do (CRI Status)."""
        ...

    async def runtime_config(self) -> str | None:
        """Return the cgroup driver that the runtime uses, "systemd" or "cgroupfs" (CRI RuntimeConfig); None = it does
        not report it, such as containerd before 2.0."""
        ...

    async def update_runtime_config(self, pod_cidrs: str) -> None:
        """Announce the addresses for pods, several separated by commas (CRI UpdateRuntimeConfig). A runtime may do
        nothing with them."""
        ...

    async def observe(self, uid: str | None = None) -> dict[str, RuntimePod]:
        """Return all pods (or the one) by UID, with every sandbox and container inspected; `observed_at` is from before
        the first request. A pod the runtime does not know is absent. Entries without pod metadata are skipped.
        Something that vanished between list and inspection is left out. Raises PartialObservationError where all were
        asked for and some could not be inspected.
        """
        ...

    async def uids_of(self, namespace: str, name: str) -> frozenset[str]:
        """Return the UIDs of the pods of this name that have a sandbox, by the labels of the sandboxes."""
        ...

    async def inspect_sandbox(self, sandbox_id: str) -> Sandbox | None:
        """Return one sandbox as `observe` shows it, without its pid; None = the runtime no longer has it."""
        ...

    async def inspect_container(self, container_id: str, sandbox_id: str) -> Container | None:
        """Return one container of this sandbox as `observe` would show it, without its pid; None = it is gone."""
        ...

    async def run_pod_sandbox(self, config: Message, runtime_handler: str) -> str:
        """Make and start a sandbox, and return its id once it is ready (CRI RunPodSandbox). `config`: a
        PodSandboxConfig; `runtime_handler`: "" = the default. Takes up to two request timeouts. A name and attempt that
        exist are refused with Unknown, "is reserved for"."""
        ...

    async def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """Stop a sandbox: its containers end without grace, and its network is removed (CRI StopPodSandbox). A stopped
        or unknown one is no error."""
        ...

    async def remove_pod_sandbox(self, sandbox_id: str) -> None:
        """Remove a sandbox with its containers, whatever state they are in (CRI RemovePodSandbox). An unknown one is no
        error."""
        ...

    async def create_container(self, sandbox_id: str, config: Message, sandbox_config: Message) -> str:
        """Make a container that does not run yet, and return its id (CRI CreateContainer). The messages are a
        ContainerConfig and the PodSandboxConfig of the sandbox. NotFound for an unknown sandbox or image; a name and
        attempt that exist are refused with Unknown, "is reserved for"."""
        ...

    async def start_container(self, container_id: str) -> None:
        """Start a container, and return when it runs (CRI StartContainer). NotFound for an unknown one, Unknown for one
        that was started before."""
        ...

    async def stop_container(self, container_id: str, timeout: int) -> None:
        """Stop a container, and return when it has ended (CRI StopContainer). It gets SIGKILL `timeout` seconds after
        the stop signal. One that has ended is no error, an unknown one NotFound."""
        ...

    async def remove_container(self, container_id: str) -> None:
        """Remove a container, whether or not it runs (CRI RemoveContainer). An unknown one is no error."""
        ...

    async def end_task(self, task_id: str) -> None:
        """End what the runtime has below CRI of this container or sandbox, which it shows as ended and does not remove:
        its processes are killed. Without a task nothing is done. Unimplemented for other runtimes than containerd."""
        ...

    async def update_container_resources(self, container_id: str, resources: Message) -> None:
        """Give a created or running container these LinuxContainerResources (CRI UpdateContainerResources). NotFound
        for an unknown one."""
        ...

    async def update_pod_sandbox_resources(self, sandbox_id: str, resources: Message, overhead: Message) -> None:
        """Announce the resources of a pod, as LinuxContainerResources (CRI UpdatePodSandboxResources). Unimplemented
        where the runtime does not have the request."""
        ...

    async def reopen_container_log(self, container_id: str) -> None:
        """Have the runtime open the container's log path again and write to that file (CRI ReopenContainerLog); its
        code is Unknown where the container does not run."""
        ...

    async def exec_sync(self, container_id: str, command: Sequence[str], timeout: int) -> ExecResult:
        """Run a command in a running container to its end. The runtime ends it after `timeout` seconds (0 = never) with
        code DeadlineExceeded; a runtime that does not even do that is given up runtimeRequestTimeout later."""
        ...

    async def checkpoint_container(self, container_id: str, location: str, timeout: int) -> None:
        """Write the state of a running container to the archive `location`, an absolute path (CRI CheckpointContainer).
        `timeout` is in seconds; one below runtimeRequestTimeout counts as that. Unimplemented where the runtime lacks
        it."""
        ...

    async def exec_url(self, container_id: str, command: Sequence[str], streams: StreamOptions) -> str:
        """Return the URL of the runtime's streaming server for this one command (CRI Exec). It can be used once, within
        a minute."""
        ...

    async def attach_url(self, container_id: str, streams: StreamOptions) -> str:
        """Return the URL of the runtime's streaming server for the container's own process, as `exec_url` does (CRI
        Attach)."""
        ...

    async def port_forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        """Return the URL of the runtime's streaming server for forwarded connections, as `exec_url` does (CRI
        PortForward); `ports` are needed only by the WebSocket protocols that fix them beforehand."""
        ...

    async def image_status(self, image: str) -> ImageStatus | None:
        """Return an image by its name or id (CRI ImageStatus); None = the runtime does not have it."""
        ...

    async def list_images(self) -> tuple[ImageStatus, ...]:
        """Return all images, each once, in the runtime's order (CRI ListImages)."""
        ...

    async def pull_image(self, image: Message, sandbox_config: Message, auth: Message | None = None) -> str:
        """Pull an image, and return the runtime's reference of it (CRI PullImage). The messages are an ImageSpec, a
        PodSandboxConfig and an AuthConfig. There is no deadline; when this is cancelled, the runtime stops pulling."""
        ...

    async def remove_image(self, image_id: str) -> None:
        """Remove an image with all its names (CRI RemoveImage); one that is not present is a success. Raises
        RuntimeCallError."""
        ...

    async def filesystems(self) -> RuntimeFilesystems:
        """Return the filesystems with images, and those with writable layers (CRI ImageFsInfo)."""
        ...

    async def writable_layers(self) -> dict[str, FilesystemFiles]:
        """Return the writable layer of each container by its id, as far as the runtime has measured it (CRI
        ListContainerStats)."""
        ...

    async def sandbox_stats(self) -> tuple[SandboxStats, ...]:
        """Return what each pod sandbox and its containers use (CRI ListPodSandboxStats). Unimplemented where the
        runtime lacks it."""
        ...

    async def metric_descriptors(self) -> tuple[MetricDescriptor, ...]:
        """Return the metrics that `sandbox_metrics` may have (CRI ListMetricDescriptors)."""
        ...

    async def sandbox_metrics(self) -> tuple[SandboxMetrics, ...]:
        """Return the samples of each pod sandbox and its containers (CRI ListPodSandboxMetrics). Unimplemented where
        the runtime lacks it."""
        ...

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """Return the events of containers (CRI GetContainerEvents). Raises RuntimeCallError with code Unimplemented
        where the runtime lacks it."""
        ...

    def content_store(self) -> ContentStore | None:
        """Return the store that images are pulled into, over a connection of its own; None = the runtime has none."""
        ...

    async def close(self) -> None:
        """Close the connections; calls under way fail with Canceled."""
        ...
