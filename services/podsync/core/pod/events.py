"""Has the events that podsync's core handles. `cause` names what led to an event, for story and streams.
`completed_at` and `observed_at` are CLOCK_MONOTONIC seconds.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bus.messages.device_plugins import DeviceResource
from bus.messages.pleg import ProbeResults, RuntimeHandler
from bus.messages.resource_claims import PodClaims
from bus.messages.volume import MountedVolumes
from services.podsync.core.pod.call_results import Result
from services.podsync.core.pod.instructions import Call
from shared.model.objects import Object
from shared.model.runtime import RuntimePod


class Event(Struct, frozen=True, kw_only=True):
    """Is the base of all events."""

    cause: str = ""


class PodDesired(Event, frozen=True, kw_only=True):
    """A source lists the pod as desired here (added or changed)."""

    uid: str
    source: str
    pod: dict[str, Any]
    recorded: str = ""  # as in DesiredPod; for the story alone


class PodUndesired(Event, frozen=True, kw_only=True):
    """No source lists the pod any more, by a complete list or an explicit removal."""

    uid: str


class SourcesFreshness(Event, frozen=True, kw_only=True):
    """The replica of the desired pods is (not) complete and (not) stale; `listed` are the UIDs that it has."""

    complete: bool
    stale: bool
    listed: frozenset[str] = frozenset()


class PodObserved(Event, frozen=True, kw_only=True):
    """pleg observed a pod in the runtime."""

    observation: RuntimePod


class PodVanished(Event, frozen=True, kw_only=True):
    """pleg reports that the runtime has nothing of this pod any more."""

    uid: str


class RuntimeListed(Event, frozen=True, kw_only=True):
    """pleg's list of the runtime's pods is (not) complete and (not) stale; only in a complete and fresh list does a
    missing pod mean that the runtime has none."""

    complete: bool
    stale: bool


class VolumesChanged(Event, frozen=True, kw_only=True):
    """The mounted volumes of a pod changed; None = none is mounted or desired."""

    uid: str
    volumes: MountedVolumes | None


class VolumesFreshness(Event, frozen=True, kw_only=True):
    """The replica of the mounted volumes is (not) complete and (not) stale."""

    complete: bool
    stale: bool


class ClaimsChanged(Event, frozen=True, kw_only=True):
    """The resource claims of a pod changed, or the health of their devices; None = it has none (any more)."""

    uid: str
    claims: PodClaims | None


class ClaimsFreshness(Event, frozen=True, kw_only=True):
    """The replica of the resource claims has become complete or incomplete, stale or not stale."""

    complete: bool
    stale: bool


class DevicesChanged(Event, frozen=True, kw_only=True):
    """The devices of a resource changed, or whether its plugin is connected; None = there is no such resource."""

    name: str
    resource: DeviceResource | None


class DevicesFreshness(Event, frozen=True, kw_only=True):
    """The replica of the device plugins' resources is (not) complete and (not) stale."""

    complete: bool
    stale: bool


class RuntimeChanged(Event, frozen=True, kw_only=True):
    """Reachability, network readiness or features of the runtime changed."""

    reachable: bool
    network_ready: bool
    network_message: str = ""
    runtime_name: str = "containerd"
    supplemental_groups_policy: bool = False  # the runtime enforces policy Strict
    mount_options: bool = False  # the runtime takes options of a container's mounts
    handlers: tuple[RuntimeHandler, ...] | None = None  # of the runtime, None = not reported


class NodePressureChanged(Event, frozen=True, kw_only=True):
    """The pressure conditions of the node changed; `conditions` are those that are True, in the Node's order."""

    conditions: tuple[str, ...]


class StartPlacesChanged(Event, frozen=True, kw_only=True):
    """Another number of pods may start at once, because tasks wait for a CPU, or no longer do."""

    places: int


class PodEvicted(Event, frozen=True, kw_only=True):
    """The pod is to end because the node is short of a resource, or because it exceeds a limit (node.md 5.6, 5.8)."""

    uid: str
    message: str
    grace_seconds: int
    disruption: str = ""  # message of the condition DisruptionTarget; "" = it gets none


class NodeShutdownChanged(Event, frozen=True, kw_only=True):
    """The machine shuts down, or its shutdown was cancelled (node.md 3)."""

    in_progress: bool
    is_confirmed: bool = True  # False = an earlier process followed it, and logind has not said yet whether it goes on


class PodStopped(Event, frozen=True, kw_only=True):
    """The pod is to stop because the machine shuts down: it ends within these seconds, and starts again after the
    boot."""

    uid: str
    grace_seconds: int


class PodLate(Event, frozen=True, kw_only=True):
    """The machine shuts down, the time of the pod's group is over, and something of the pod is left."""

    uid: str


class GarbageFound(Event, frozen=True, kw_only=True):
    """These dead containers (pod UID -> ids) are to be removed, whatever their pods keep."""

    containers: Mapping[str, frozenset[str]]


class NodeChanged(Event, frozen=True, kw_only=True):
    """Our Node changed in the API server; None = it has none, or that is not known."""

    node: Object | None


class ProbesChanged(Event, frozen=True, kw_only=True):
    """The results of the probes of one instance changed; None = the instance is gone, or pleg was restarted."""

    container_id: str
    pod_uid: str
    results: ProbeResults | None


class CallDone(Event, frozen=True, kw_only=True):
    """Our own call succeeded."""

    uid: str
    call: Call
    completed_at: float
    result: Result | None = None
    warnings: tuple[tuple[str, str], ...] = ()  # reason and message of Warning events of the pod
    # Of Warning events of a container: reason, message, its name.
    container_warnings: tuple[tuple[str, str, str], ...] = ()


DIRECTORIES_FAILED = "Failed"  # PreparePod: the pod's directories were not made
SANDBOX_STATUS_FAILED = "FailedPodSandBoxStatus"  # RunPodSandbox: it was made, and cannot be read


# AllocatePodDevices: a plugin has refused the devices, and the pod is rejected; any other failure is tried again.
DEVICES_REFUSED = "DevicesRefused"


class CallFailed(Event, frozen=True, kw_only=True):
    """Our own call failed. `reason` is a waiting reason, or that of the pod's event, where it is not the call's
    default."""

    uid: str
    call: Call
    completed_at: float
    code: str  # gRPC code name, or "" for a failure on this side
    text: str  # the kubelet's error text, `rpc error: code = … desc = …`
    description: str  # without the rpc prefix
    reason: str = ""
    interrupted: bool = False  # podsync cancelled it, see InterruptCall, which is no failure
    begun: bool = True  # False: it was cancelled before it was performed, and none of its hooks runs
    warnings: tuple[tuple[str, str], ...] = ()  # reason and message of Warning events of the pod
    # Of Warning events of a container: reason, message, its name.
    container_warnings: tuple[tuple[str, str, str], ...] = ()


class TimePassed(Event, frozen=True, kw_only=True):
    """A moment that a WakeAt requested has come."""
