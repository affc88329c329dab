"""Has the events that podsync's core handles. `cause` names what led to an event, for story and streams.
`completed_at` and `observed_at` are CLOCK_MONOTONIC seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bus.messages.device_plugins import DeviceResource
from bus.messages.pleg import ProbeResults, RuntimeHandler
from bus.messages.resource_claims import PodClaims
from bus.messages.volume import MountedVolumes
from services.podsync.core.pod.call_results import Result
from services.podsync.core.pod.instructions import Call
from shared.model.objects import Object
from shared.model.runtime import RuntimePod


@dataclass(frozen=True, kw_only=True)
class Event:
    """Is the base of all events."""

    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class PodDesired(Event):
    """A source lists the pod as desired here (added or changed)."""

    uid: str
    source: str
    pod: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PodUndesired(Event):
    """No source lists the pod any more, by a complete list or an explicit removal."""

    uid: str


@dataclass(frozen=True, kw_only=True)
class SourcesFreshness(Event):
    """The replica of the desired pods is (not) complete and (not) stale; `listed` are the UIDs that it has."""

    complete: bool
    stale: bool
    listed: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class PodObserved(Event):
    """pleg observed a pod in the runtime."""

    observation: RuntimePod


@dataclass(frozen=True, kw_only=True)
class PodVanished(Event):
    """pleg reports that the runtime has nothing of this pod any more."""

    uid: str


@dataclass(frozen=True, kw_only=True)
class RuntimeListed(Event):
    """pleg's list of the runtime's pods is (not) complete and (not) stale; only in a complete and fresh list does a
    missing pod mean that the runtime has none."""

    complete: bool
    stale: bool


@dataclass(frozen=True, kw_only=True)
class VolumesChanged(Event):
    """The mounted volumes of a pod changed; None = none is mounted or desired."""

    uid: str
    volumes: MountedVolumes | None


@dataclass(frozen=True, kw_only=True)
class VolumesFreshness(Event):
    """The replica of the mounted volumes is (not) complete and (not) stale."""

    complete: bool
    stale: bool


@dataclass(frozen=True, kw_only=True)
class ClaimsChanged(Event):
    """The resource claims of a pod changed, or the health of their devices; None = it has none (any more)."""

    uid: str
    claims: PodClaims | None


@dataclass(frozen=True, kw_only=True)
class ClaimsFreshness(Event):
    """The replica of the resource claims is (not) complete and (not) stale."""

    complete: bool
    stale: bool


@dataclass(frozen=True, kw_only=True)
class DevicesChanged(Event):
    """The devices of a resource changed, or whether its plugin is connected; None = there is no such resource."""

    name: str
    resource: DeviceResource | None


@dataclass(frozen=True, kw_only=True)
class DevicesFreshness(Event):
    """The replica of the device plugins' resources is (not) complete and (not) stale."""

    complete: bool
    stale: bool


@dataclass(frozen=True, kw_only=True)
class RuntimeChanged(Event):
    """Reachability, network readiness or features of the runtime changed."""

    reachable: bool
    network_ready: bool
    network_message: str = ""
    runtime_name: str = "containerd"
    supplemental_groups_policy: bool = False  # the runtime enforces policy Strict
    handlers: tuple[RuntimeHandler, ...] | None = None  # of the runtime, None = not reported


@dataclass(frozen=True, kw_only=True)
class NodePressureChanged(Event):
    """The pressure conditions of the node changed; `conditions` are those that are True, in the Node's order."""

    conditions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PodEvicted(Event):
    """The pod is to end because the node is short of a resource, or because it exceeds a limit (node.md 5.6, 5.8)."""

    uid: str
    message: str
    grace_seconds: int
    disruption: str = ""  # message of the condition DisruptionTarget; "" = it gets none


@dataclass(frozen=True, kw_only=True)
class NodeShutdownChanged(Event):
    """The machine shuts down, or its shutdown was cancelled (node.md 3)."""

    in_progress: bool


@dataclass(frozen=True, kw_only=True)
class PodStopped(Event):
    """The pod is to stop because the machine shuts down: it ends within these seconds, and starts again after the
    boot."""

    uid: str
    grace_seconds: int


@dataclass(frozen=True, kw_only=True)
class PodLate(Event):
    """The machine shuts down, the time of the pod's group is over, and something of the pod is left."""

    uid: str


@dataclass(frozen=True, kw_only=True)
class GarbageFound(Event):
    """These dead containers (pod UID -> ids) are to be removed, whatever their pods keep."""

    containers: Mapping[str, frozenset[str]]


@dataclass(frozen=True, kw_only=True)
class NodeChanged(Event):
    """Our Node changed in the API server; None = it has none, or that is not known."""

    node: Object | None


@dataclass(frozen=True, kw_only=True)
class ProbesChanged(Event):
    """The results of the probes of one instance changed; None = the instance is gone, or pleg was restarted."""

    container_id: str
    pod_uid: str
    results: ProbeResults | None


@dataclass(frozen=True, kw_only=True)
class CallDone(Event):
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


@dataclass(frozen=True, kw_only=True)
class CallFailed(Event):
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


@dataclass(frozen=True, kw_only=True)
class TimePassed(Event):
    """A moment that a WakeAt requested has come."""
