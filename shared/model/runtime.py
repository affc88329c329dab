"""What the container runtime has of one pod, at one moment: the shape `runtime.pods` carries and podsync decides from.

Times inside are the runtime's own wall clock in nanoseconds since the epoch, 0 when not set (as CRI reports them).
`observed_at` is CLOCK_MONOTONIC in seconds, taken before the first request of the observation was sent: an observation
older than one's own last call shows nothing of that call (design: fast by events, correct by relist).
"""

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """One pod sandbox of a pod, from CRI PodSandboxStatus."""

    id: str
    attempt: int
    state: SandboxState
    created_at: int
    host_network: bool = False
    ips: tuple[str, ...] = ()
    network_reported: bool = False  # status.network was present (an empty ip in it means: make a new sandbox)
    runtime_handler: str = ""
    pid: int = 0  # of the sandbox's first process, from the verbose status; 0 = not known
    static_source: str = ""  # annotation kubernetes.io/config.source: "file" or "http"; "" = no static pod


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container of a pod, from CRI ContainerStatus and its annotations (pods.md 6.2)."""

    id: str
    name: str
    attempt: int  # CRI metadata.attempt
    sandbox_id: str
    state: ContainerState
    created_at: int
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""  # the runtime's own message; the termination message file is read apart
    termination_message: str = ""  # last <= 4096 bytes of the termination message file, read when the container exited
    image: str = ""  # status.image.image
    image_id: str = ""  # CRI image_ref
    spec_hash: str = ""  # annotation io.kubernetes.container.hash
    restart_count: int = 0  # annotation io.kubernetes.container.restartCount, else the attempt
    log_path: str = ""
    user: tuple[int, int, tuple[int, ...]] | None = (
        None  # uid, gid, supplemental groups, where the runtime reports them
    )
    pid: int = 0  # of the first process while running, from the verbose status; 0 = not known


@dataclass(frozen=True, kw_only=True)
class RuntimePod:
    """All sandboxes (newest first) and containers (newest first) the runtime has under one pod UID."""

    uid: str
    name: str
    namespace: str
    observed_at: float
    sandboxes: tuple[Sandbox, ...] = ()
    containers: tuple[Container, ...] = ()

    def same_content(self, other: "RuntimePod") -> bool:
        """Equal but for the moment of observation."""
        return (self.uid, self.name, self.namespace, self.sandboxes, self.containers) == (
            other.uid,
            other.name,
            other.namespace,
            other.sandboxes,
            other.containers,
        )
