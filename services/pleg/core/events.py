"""Has the events of the observation of pods. Decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.model.runtime import RuntimePod


@dataclass(frozen=True)
class Relisted:
    """A full list succeeded. `observed_at` is the time before its first request, at which pods that are not in it were
    absent. `unseen`: pods that are in the list but could not be inspected; nothing is known of them.
    """

    pods: Mapping[str, RuntimePod]
    observed_at: float
    unseen: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PodObserved:
    """One pod was looked at; None = the runtime has nothing of it."""

    uid: str
    pod: RuntimePod | None
    observed_at: float


@dataclass(frozen=True)
class ObservationFailed:
    """The look at one pod failed."""

    uid: str


@dataclass(frozen=True)
class ProcessExited:
    """The kernel reports that the watched process of this container or sandbox has ended."""

    id: str


@dataclass(frozen=True)
class WatchFailed:
    """The process could not be watched: it is `gone`, or the kernel refused (descriptors, permission)."""

    id: str
    gone: bool


@dataclass(frozen=True)
class RuntimeEventReceived:
    """A message of GetContainerEvents came; the uid is empty where the runtime did not name one."""

    uid: str
    type: str


@dataclass(frozen=True)
class EventStreamChanged:
    """The stream of GetContainerEvents opened or broke."""

    connected: bool


@dataclass(frozen=True)
class StatusContainersChanged:
    """The published status of a pod names these containers as running; none = no container, or there is no status."""

    uid: str
    ids: tuple[str, ...]
    name: str = ""  # of the pod
    namespace: str = ""


@dataclass(frozen=True)
class TimePassed:
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
