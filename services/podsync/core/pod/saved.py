"""Has what is on disk of a pod, besides its newest status: frozen values, each field of which is saved.
A change is a new value (`frozen_copy.replace`). A changed `Saved` is on disk before anything is published or called.
Moments are steady seconds, as in `tracked_pod`. `saved_format` decides how the file looks.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field

from bus.messages.podsync import PodState
from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement
from services.podsync.core.pod.allocation import Allocation, PendingResize, ResizeInProgress, Resources
from shared.model.frozen_copy import replace

Pod = dict[str, Any]
_K = TypeVar("_K")
_V = TypeVar("_V")


class CrashBackoff(Struct, frozen=True, kw_only=True):
    """Has the crash-loop back-off of one container (pods.md 7.2), which the runtime does not have."""

    key: str  # name/namespace/uid/container/image/resources: a change of image or resources resets the back-off
    seconds: float
    updated: float  # steady seconds at which `seconds` was set
    instance: str  # the exited container that was counted, so that it is counted once


class SavedContainer(Struct, frozen=True, kw_only=True):
    """Has what only podsync knows of one container. An instance is an id, or `#attempt` while it has none; "" =
    none."""

    # Instance that we start or have started; "" again when the runtime reports that the start failed. An instance that
    # never ran, without such a report, was interrupted.
    starting: str = ""
    replacing: str = ""  # instance killed so that another one starts; "" again when that start is over
    # As `replacing`, where the other one did not start at once: the kill then counts for the crash-loop back-off.
    held_back: str = ""
    hook_owed: str = ""  # instance whose postStart has not ended
    hook_failed: str = ""  # instance to be stopped because its postStart failed
    device_failed: str = ""  # instance to be stopped because a device of it became unhealthy
    unhealthy_devices: str = ""  # the devices that were reported so, a line for each, named as in `reported_health`
    crash_backoff: CrashBackoff | None = None


NOTHING_SAVED = SavedContainer()


class ImageBackoff(Struct, frozen=True, kw_only=True):
    """Has the pull back-off of one image of this pod (pods.md 7.3)."""

    seconds: float
    updated: float  # steady seconds
    message: str  # `ErrImagePull: <text>` of the failure, shown while waiting


class ShutdownStop(Struct, frozen=True, kw_only=True):
    """Has that a pod is stopped because the machine shuts down. It starts again in another boot, or when the shutdown
    is cancelled."""

    boot: str  # identity of the boot that ends
    since: float  # steady seconds
    grace_seconds: int
    stopped: bool = False  # whether nothing of it runs any more, so that its volumes are unmounted


class Saved(Struct, frozen=True, kw_only=True):
    """Has what only podsync knows of a pod. The mappings are never changed in place."""

    source: str = ""
    pod: Pod = field(default_factory=dict)  # {} = known only from the runtime
    state: PodState = PodState.SYNC
    # What the API server's status names of its resource claims (`claim_status`), {} = nothing.
    claim_status: Mapping[str, Any] = field(default_factory=dict)
    deleted: bool = False  # whether no source lists it any more
    restart_requested: bool = False  # whether it was listed again under the same UID while terminating
    admission_decided: bool = True
    decided_by: str = ""  # which start of the agent (of its supervisord) admitted or rejected the pod
    active_since: float = 0.0  # steady seconds of `start_time`, 0 = not computed yet
    rejected: str = ""
    rejected_message: str = ""
    victims: tuple[str, ...] = ()  # UIDs preempted for this pod: it starts once they have stopped
    ending: Mapping[str, str] = field(default_factory=dict)  # why this agent ends the pod: reason, message, disruption
    plugins_awaited_since: float = 0.0  # steady seconds since when the verdict waits for device plugins, 0 = it did not
    allocation: Allocation | None = None  # `pod` has these resources; None = no verdict yet
    # What containers have of CPUs, NUMA nodes and devices; saved with the verdict, with devices once before it.
    placement: PodPlacement = NOT_PLACED
    # By name what a container was given, where that is not its allocation. It matters only while the container runs.
    actuated: Mapping[str, Resources] = field(default_factory=dict)
    pending_resize: PendingResize | None = None
    resize: ResizeInProgress | None = None
    shutdown: ShutdownStop | None = None  # None = the machine does not shut down, or the pod may still run
    outcome: str = ""  # the terminal phase of the pod, shown once nothing of it runs
    start_time: str = ""  # status.startTime
    terminating_since: float = 0.0  # steady seconds
    grace_seconds: int = 0
    termination_cause: str = ""
    finished_at: float = 0.0  # steady seconds
    containers: Mapping[str, SavedContainer] = field(default_factory=dict)  # by name; none is `NOTHING_SAVED`
    pre_stops: Mapping[str, float] = field(default_factory=dict)  # instance -> steady seconds when its preStop began
    restarting_all: bool = False  # RestartAllContainers: every instance is removed before the first one starts again
    left_behind: tuple[str, ...] = ()  # instances that the runtime does not remove; the pod continues beside them
    image_backoff: Mapping[str, ImageBackoff] = field(default_factory=dict)  # by image

    def container(self, name: str) -> SavedContainer:
        """Return what is saved of this container."""
        return self.containers.get(name, NOTHING_SAVED)


class Attempts(Struct, frozen=True, kw_only=True):
    """Has attempt numbers, which the runtime has, too: they are on disk within half a second, and before anything from
    which they can be read is removed."""

    sandbox: int = -1  # newest attempt known to have existed, -1 = none
    containers: Mapping[str, int] = field(default_factory=dict)  # container -> newest attempt known to have existed


def with_container(saved: Saved, name: str, container: SavedContainer) -> Saved:
    """Return the facts with this value for the container; the same object where it is no change."""
    if container == saved.container(name):
        return saved
    if container == NOTHING_SAVED:
        return replace(saved, containers=without(saved.containers, name))
    return replace(saved, containers={**saved.containers, name: container})


def with_containers(saved: Saved, change: Callable[[SavedContainer], SavedContainer]) -> Saved:
    """Return the facts with this change of each container."""
    for name, container in saved.containers.items():
        saved = with_container(saved, name, change(container))
    return saved


def without(mapping: Mapping[_K, _V], *keys: _K) -> Mapping[_K, _V]:
    """Return the mapping without these keys; the same object where it has none of them."""
    if not any(key in mapping for key in keys):
        return mapping
    return {key: value for key, value in mapping.items() if key not in keys}
