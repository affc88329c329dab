"""Describes what the container runtime has of one pod, at one moment: the shape `runtime.pods` carries and podsync
decides from.

Times inside are the runtime's own wall clock in nanoseconds since the epoch, 0 when not set (as CRI reports them).
`observed_at` is CLOCK_MONOTONIC in seconds, taken before the first request of the observation was sent: an observation
older than one's own last call shows nothing of that call (design: fast by events, correct by relist).
"""

from enum import StrEnum

from msgspec import Struct


class SandboxState(StrEnum):
    """CRI PodSandboxState without its prefix."""

    READY = "READY"
    NOTREADY = "NOTREADY"


class ContainerState(StrEnum):
    """CRI ContainerState without its prefix."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    UNKNOWN = "UNKNOWN"


class Sandbox(Struct, frozen=True, kw_only=True):
    """One pod sandbox of a pod, from CRI PodSandboxStatus."""

    id: str  # CRI id
    attempt: int  # CRI `metadata.attempt`
    state: SandboxState  # `READY` or `NOTREADY`
    created_at: int  # nanoseconds since the epoch, the runtime's clock; 0 = not set
    host_network: bool = False  # it is in the network namespace of the node
    ips: tuple[str, ...] = ()  # addresses of the pod, the first one is `podIP`
    network_reported: bool = False  # the status had a network part; without an IP then, a new sandbox is needed
    runtime_handler: str = ""  # name of the handler; "" = the default one
    pid: int = 0  # of its first process, from the verbose status; 0 = not known
    static_source: str = ""  # `file` or `http`, by the annotation `kubernetes.io/config.source`; "" = no static pod


class Container(Struct, frozen=True, kw_only=True):
    """One container of a pod, from CRI ContainerStatus and its annotations (pods.md 6.2)."""

    id: str  # CRI id
    name: str  # in the spec of the pod
    attempt: int  # CRI metadata.attempt
    sandbox_id: str  # CRI id of its sandbox
    state: ContainerState  # `CREATED`, `RUNNING`, `EXITED` or `UNKNOWN`
    created_at: int  # nanoseconds since the epoch; 0 = not set
    started_at: int = 0  # nanoseconds since the epoch; 0 = not set
    finished_at: int = 0  # nanoseconds since the epoch; 0 = not set
    exit_code: int = 0  # of its first process, once it has ended
    reason: str = ""  # the runtime's
    message: str = ""  # the runtime's own; the termination message file is read apart
    termination_message: str = ""  # up to 4096 bytes of the termination message file, read at the exit
    image: str = ""  # as requested: `status.image.image`
    image_id: str = ""  # CRI image_ref
    spec_hash: str = ""  # annotation `io.kubernetes.container.hash`
    restart_count: int = 0  # annotation `io.kubernetes.container.restartCount`, else the attempt
    log_path: str = ""  # absolute path of its log file
    # uid, gid, supplemental groups, where the runtime reports them
    user: tuple[int, int, tuple[int, ...]] | None = None
    pid: int = 0  # of its first process while it runs, from the verbose status; 0 = not known


class RuntimePod(Struct, frozen=True, kw_only=True):
    """All sandboxes (newest first) and containers (newest first) the runtime has under one pod UID."""

    uid: str  # pod UID
    name: str  # name of the pod
    namespace: str  # namespace of the pod
    observed_at: float  # CLOCK_MONOTONIC seconds before the first request of the observation
    sandboxes: tuple[Sandbox, ...] = ()  # newest first
    containers: tuple[Container, ...] = ()  # newest first

    def same_content(self, other: "RuntimePod") -> bool:
        """Equal but for the moment of observation."""
        return (self.uid, self.name, self.namespace, self.sandboxes, self.containers) == (
            other.uid,
            other.name,
            other.namespace,
            other.sandboxes,
            other.containers,
        )
