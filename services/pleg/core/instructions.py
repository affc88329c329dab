"""The instructions of the observation of pods, performed in the order given."""

from dataclasses import dataclass

from shared.model.runtime import RuntimePod


@dataclass(frozen=True)
class PublishPod:
    """Put the pod on `runtime.pods`."""

    pod: RuntimePod
    cause: str


@dataclass(frozen=True)
class WithdrawPod:
    """Delete the pod from `runtime.pods`: the runtime no longer has it."""

    uid: str
    cause: str


@dataclass(frozen=True)
class MarkComplete:
    """Everything the runtime has is published."""


@dataclass(frozen=True)
class ObservePod:
    """Look at this pod now; answer with PodObserved or ObservationFailed."""

    uid: str
    cause: str


@dataclass(frozen=True)
class Relist:
    """List everything now, not when it is next due."""

    cause: str


@dataclass(frozen=True)
class WatchProcess:
    """Report the end of this process; where that is impossible, the event WatchRefused follows."""

    id: str
    pid: int


@dataclass(frozen=True)
class UnwatchProcess:
    """Watch it no longer."""

    id: str


Instruction = PublishPod | WithdrawPod | MarkComplete | ObservePod | Relist | WatchProcess | UnwatchProcess
