"""What would become of a pod on this node: podsync answers it from its present state, and changes nothing."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GetPodPreview:
    """Request to podsync: admission and start of this pod, if a source listed it now. `pod`: valid, with defaults, UID
    and the annotation of its source, as on `pods.desired`."""

    source: str  # file | http | api
    pod: dict[str, Any] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class PreemptedPod:
    """A pod that would end to make room."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, kw_only=True)
class PreviewedImage:
    """The image of one container or of one image volume; one of `container` and `volume` is "".

    `present`: the runtime has it; None = the runtime did not answer in time.
    """

    image: str  # with its tag
    policy: str  # Always | IfNotPresent | Never
    container: str = ""
    volume: str = ""
    present: bool | None = None
    providers: tuple[str, ...] = ()  # credential provider plugins that a pull would run
    problem: str = ""  # why no container starts from it: `<waiting reason>: <message>`


@dataclass(frozen=True, kw_only=True)
class PreviewedMount:
    """One mount or block device of a container."""

    container_path: str
    host_path: str = ""  # "" = known only once the volume is mounted
    volume: str = ""  # its name; "" = a file of the agent: the hosts file, the termination message
    kind: str = ""  # field of the volume's source, such as configMap
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class PreviewedContainer:
    """One container."""

    name: str
    kind: str  # init | sidecar | regular | ephemeral
    oom_score_adj: int = 0
    # Numbers of the CRI LinuxContainerResources that are not 0: cpu_shares, cpu_quota and cpu_period (microseconds),
    # memory_limit_in_bytes.
    resources: dict[str, int] = field(default_factory=dict)
    mounts: tuple[PreviewedMount, ...] = ()
    problem: str = ""  # why it does not start: `<waiting reason>: <message>`


@dataclass(frozen=True, kw_only=True)
class PreviewedPort:
    """One port of the node that the pod takes, and the pods (`<namespace>/<name>`) that have it."""

    protocol: str
    ip: str  # "" = all addresses
    port: int
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PodPreview:
    """Answer to GetPodPreview. Without `waits_for` and `reason` the pod would be admitted."""

    waits_for: str = ""  # what admission waits for; "" = it would decide now
    reason: str = ""  # of the rejection
    message: str = ""
    preempted: tuple[PreemptedPod, ...] = ()
    qos_class: str = ""
    cgroup: str = ""  # path of the pod's cgroup; "" = pods have none
    cgroup_files: dict[str, str] = field(default_factory=dict)  # file of the cgroup -> text
    containers: tuple[PreviewedContainer, ...] = ()
    images: tuple[PreviewedImage, ...] = ()
    host_ports: tuple[PreviewedPort, ...] = ()
    pressures: tuple[str, ...] = ()  # node conditions that are True: MemoryPressure, DiskPressure, PIDPressure
    taints: tuple[str, ...] = ()  # of the Node that the pod does not tolerate: `<key>=<value>:<effect>`
    problems: tuple[str, ...] = ()  # what would keep the sandbox of an admitted pod from starting
