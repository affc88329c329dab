"""Has the events of the observation of pods. Decides nothing."""

from collections.abc import Mapping

from msgspec import Struct

from shared.model.runtime import RuntimePod


class Relisted(Struct, frozen=True):
    """A full list succeeded. `observed_at` is the time before its first request, at which pods that are not in it were
    absent. `unseen`: pods that are in the list but could not be inspected; nothing is known of them.
    """

    pods: Mapping[str, RuntimePod]
    observed_at: float
    unseen: frozenset[str] = frozenset()


class PodObserved(Struct, frozen=True):
    """One pod was looked at; None = the runtime has nothing of it."""

    uid: str
    pod: RuntimePod | None
    observed_at: float


class ObservationFailed(Struct, frozen=True):
    """The look at one pod failed."""

    uid: str


class ProcessExited(Struct, frozen=True):
    """The kernel reports that the watched process of this container or sandbox has ended."""

    id: str


class WatchFailed(Struct, frozen=True):
    """The process could not be watched: it is `gone`, or the kernel refused (descriptors, permission)."""

    id: str
    gone: bool


class RuntimeEventReceived(Struct, frozen=True):
    """A message of GetContainerEvents came; the uid is empty where the runtime did not name one."""

    uid: str
    type: str


class EventStreamChanged(Struct, frozen=True):
    """The stream of GetContainerEvents opened or broke."""

    connected: bool


class StatusContainersChanged(Struct, frozen=True):
    """The published status of a pod names these containers as running; none = no container, or there is no status."""

    uid: str
    ids: tuple[str, ...]
    name: str = ""  # of the pod
    namespace: str = ""


class TimePassed(Struct, frozen=True):
    """The moment of `Observation.next_look` has come."""


Event = (
    Relisted
    | PodObserved
    | ObservationFailed
    | ProcessExited
    | WatchFailed
    | RuntimeEventReceived
    | EventStreamChanged
    | StatusContainersChanged
    | TimePassed
)
