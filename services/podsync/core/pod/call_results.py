"""Has what comes back from calls that succeeded: one type for each kind, and None where only the success counts."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from bus.messages.device_plugins import AllocatedDevices
from shared.cri.interface import ImageStatus
from shared.model.objects import Object
from shared.model.runtime import Container, RuntimePod, Sandbox


class PodListed(Struct, frozen=True, kw_only=True):
    """Has the pod as it was listed by LookAtPod, or after a call that starts, stops or removes."""

    pod: RuntimePod
    cgroup_missing: bool = False  # LookAtPod: the pod's cgroup does not exist
    resources: Mapping[str, Any] | None = None  # LookAtPod: as of PodResized; None = not read
    namesakes: tuple[RuntimePod, ...] = ()  # LookAtPod: the other pods of the same name


class PartListed(Struct, frozen=True, kw_only=True):
    """Has what RunPodSandbox, StartContainer, KillPod or a removal changed, where nothing else can have changed
    meanwhile."""

    sandbox: Sandbox | None = None
    containers: tuple[Container, ...] = ()
    removed: frozenset[str] = frozenset()  # ids of what is not there any more


class PodPrepared(Struct, frozen=True, kw_only=True):
    """Has the result of PreparePod."""

    log_attempts: dict[str, int] = field(default_factory=dict)  # container -> newest attempt among its log files
    cgroup_missing: bool = False  # the pod's cgroup does not exist and was not made


class PodResized(Struct, frozen=True, kw_only=True):
    """Has the result of ResizePod."""

    resources: Mapping[str, Any] | None = None  # of the pod, as its cgroup has them; None = they cannot be read


class NodeRead(Struct, frozen=True, kw_only=True):
    """Has the result of FetchNode; None = the Node could not be read."""

    node: Object | None


class DevicesPreferred(Struct, frozen=True, kw_only=True):
    """Has the result of AskPreferredDevices."""

    ids: frozenset[str]  # among those that it was asked about, perhaps none


class DevicesAllocated(Struct, frozen=True, kw_only=True):
    """Has the result of AllocatePodDevices."""

    setups: tuple[AllocatedDevices, ...]  # one for each request, in their order


class ImageInspected(Struct, frozen=True, kw_only=True):
    """Has the result of InspectImage."""

    image: ImageStatus | None  # None = not present
    must_pull: bool = False  # whether only a pull can show that this pod may use the image, which is present


class ImagePulled(Struct, frozen=True, kw_only=True):
    """Has the result of PullImage, with times in seconds."""

    image: ImageStatus | None
    took: float = 0.0  # of the pull alone
    waited: float = 0.0  # with the wait for a turn


class ContainerCreated(Struct, frozen=True, kw_only=True):
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
