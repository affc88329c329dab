"""Messages of which pleg is the owner. Stream `runtime.pods` carries `shared.model.runtime.RuntimePod` itself."""

from dataclasses import dataclass

from shared.model.probes import ProbeResult


@dataclass(frozen=True, kw_only=True)
class RuntimeHandler:
    """One handler of the runtime, as `node.status.runtimeHandlers` shows it; name "" = the default handler."""

    name: str
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeObserved:
    """Stream `node.observed`, key `node`: facts of runtime and machine; republished only when one changes materially.

    Bytes and counts are plain integers; -1 = could not be read.
    """

    observed_at: float  # CLOCK_MONOTONIC seconds
    runtime_reachable: bool
    runtime_name: str = ""
    runtime_version: str = ""
    runtime_ready: bool = False
    runtime_message: str = ""  # `reason:<R> message:<M>` of RuntimeReady when not ready
    network_ready: bool = False
    network_message: str = "network state unknown"
    event_stream: bool = False  # GetContainerEvents is connected
    last_relist_at: float = 0.0  # CLOCK_MONOTONIC seconds of the last successful relist, 0 = never
    memory_capacity: int = -1
    nodefs_capacity: int = -1
    cpus: int = -1
    runtime_handlers: tuple[RuntimeHandler, ...] | None = (
        None  # sorted by name; None = the runtime does not report them
    )
    supplemental_groups_policy: bool | None = None  # feature of the runtime; None = not reported


@dataclass(frozen=True, kw_only=True)
class NodeImage:
    """One image the runtime has."""

    id: str
    names: tuple[str, ...]  # repo digests, then repo tags
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class NodeImages:
    """Stream `node.images`, key `node`: all images of the runtime, largest first, ties by id descending."""

    images: tuple[NodeImage, ...]


@dataclass(frozen=True, kw_only=True)
class ProbeResults:
    """Stream `probes.results`, key: bare CRI container id: what the probes of one instance have found."""

    pod_uid: str
    container: str
    liveness: ProbeResult = ProbeResult.NONE
    readiness: ProbeResult = ProbeResult.NONE
    startup: ProbeResult = ProbeResult.NONE
    failure: str = ""  # output of the newest failure among them, at most 512 characters; for the pod's story
