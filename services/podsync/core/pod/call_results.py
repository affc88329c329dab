"""Has what comes back from calls that succeeded: one type for each kind, and None where only the success counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bus.messages.device_plugins import AllocatedDevices
from shared.cri.interface import ImageStatus
from shared.model.objects import Object
from shared.model.runtime import Container, RuntimePod, Sandbox


@dataclass(frozen=True, kw_only=True)
class PodListed:
    """Has the pod as it was listed by LookAtPod, or after a call that starts, stops or removes."""

    pod: RuntimePod
    cgroup_missing: bool = False  # LookAtPod: the pod's cgroup does not exist
    resources: Mapping[str, Any] | None = None  # LookAtPod: as of PodResized; None = not read
    namesakes: tuple[RuntimePod, ...] = ()  # LookAtPod: the other pods of the same name


@dataclass(frozen=True, kw_only=True)
class PartListed:
    """Has what RunPodSandbox, StartContainer or KillPod changed, where the call can have changed nothing else."""

    sandbox: Sandbox | None = None
    containers: tuple[Container, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PodPrepared:
    """Has the result of PreparePod."""

    log_attempts: dict[str, int] = field(default_factory=dict)  # container -> newest attempt among its log files
    cgroup_missing: bool = False  # the pod's cgroup does not exist and was not made


@dataclass(frozen=True, kw_only=True)
class PodResized:
    """Has the result of ResizePod."""

    resources: Mapping[str, Any] | None = None  # of the pod, as its cgroup has them; None = they cannot be read


@dataclass(frozen=True, kw_only=True)
class NodeRead:
    """Has the result of FetchNode; None = the Node could not be read."""

    node: Object | None


@dataclass(frozen=True, kw_only=True)
class DevicesPreferred:
    """Has the result of AskPreferredDevices."""

    ids: frozenset[str]  # among those that it was asked about, perhaps none


@dataclass(frozen=True, kw_only=True)
class DevicesAllocated:
    """Has the result of AllocatePodDevices."""

    setups: tuple[AllocatedDevices, ...]  # one for each request, in their order


@dataclass(frozen=True, kw_only=True)
class ImageInspected:
    """Has the result of InspectImage."""

    image: ImageStatus | None  # None = not present
    must_pull: bool = False  # whether only a pull can show that this pod may use the image, which is present


@dataclass(frozen=True, kw_only=True)
class ImagePulled:
    """Has the result of PullImage, with times in seconds."""

    image: ImageStatus | None
    took: float = 0.0  # of the pull alone
    waited: float = 0.0  # with the wait for a turn


@dataclass(frozen=True, kw_only=True)
class ContainerCreated:
    """Has the result of CreateContainer."""

    container_id: str
    log_path: str = ""
    cpus: str = ""  # its cpuset, "" = all CPUs


Result = (
    PodListed
    | PartListed
    | PodPrepared
    | PodResized
    | NodeRead
    | DevicesPreferred
    | DevicesAllocated
    | ImageInspected
    | ImagePulled
    | ContainerCreated
)
