"""Messages of which pleg is the owner. Stream `runtime.pods` carries `shared.model.runtime.RuntimePod` itself."""

from msgspec import Struct

from shared.model.probes import ProbeResult


class RuntimeHandler(Struct, frozen=True, kw_only=True):
    """One handler of the runtime, as `node.status.runtimeHandlers` shows it; name "" = the default handler."""

    name: str  # "" = the default handler
    recursive_read_only_mounts: bool = False  # feature of the handler
    user_namespaces: bool = False  # feature of the handler


class NodeObserved(Struct, frozen=True, kw_only=True):
    """Stream `node.observed`, key `node`: facts of runtime and machine; republished only when one changes materially.

    Bytes and counts are plain integers; -1 = could not be read.
    """

    observed_at: float  # CLOCK_MONOTONIC seconds
    runtime_reachable: bool  # the runtime answers
    runtime_name: str = ""  # what the runtime answers to Version
    runtime_version: str = ""  # what the runtime answers to Version
    runtime_ready: bool = False  # condition RuntimeReady
    runtime_message: str = ""  # `reason:<R> message:<M>` when not ready
    network_ready: bool = False  # condition NetworkReady
    network_message: str = "network state unknown"  # why the network is not ready
    event_stream: bool = False  # GetContainerEvents is connected
    last_relist_at: float = 0.0  # CLOCK_MONOTONIC seconds of the last successful relist; 0 = never
    memory_capacity: int = -1  # bytes
    nodefs_capacity: int = -1  # bytes
    cpus: int = -1  # logical processors
    # sorted by name; None = the runtime does not report them
    runtime_handlers: tuple[RuntimeHandler, ...] | None = None
    supplemental_groups_policy: bool | None = None  # feature of the runtime; None = not reported
    mount_options: bool = False  # the runtime takes options of a container's mounts


class NodeImage(Struct, frozen=True, kw_only=True):
    """One image the runtime has."""

    id: str  # CRI id
    names: tuple[str, ...]  # repo digests, then repo tags
    size_bytes: int  # its size in bytes


class NodeImages(Struct, frozen=True, kw_only=True):
    """Stream `node.images`, key `node`: all images of the runtime, largest first, ties by id descending."""

    images: tuple[NodeImage, ...]  # largest first, ties by id descending


class ProbeResults(Struct, frozen=True, kw_only=True):
    """Stream `probes.results`, key: bare CRI container id: what the probes of one instance have found."""

    pod_uid: str  # pod UID
    container: str  # name in the spec
    liveness: ProbeResult = ProbeResult.NONE  # `success`, `failure`, or empty = no probe of the kind, or no result yet
    readiness: ProbeResult = ProbeResult.NONE  # the same
    startup: ProbeResult = ProbeResult.NONE  # the same
    failure: str = ""  # the output of the newest failure, at most 512 characters; for `bulkhead explain`
