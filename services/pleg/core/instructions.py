"""Has the instructions of the observation of pods, which are performed in their order."""

from dataclasses import dataclass

from shared.model.runtime import RuntimePod


@dataclass(frozen=True)
class PublishPod:
    """Publish the pod on `runtime.pods`."""

    pod: RuntimePod
    cause: str


@dataclass(frozen=True)
class WithdrawPod:
    """Delete the pod from `runtime.pods`: the runtime no longer has it."""

    uid: str
    cause: str


@dataclass(frozen=True)
class MarkComplete:
    """Mark `runtime.pods` complete: everything the runtime has is published."""


@dataclass(frozen=True)
class ObservePod:
    """Look at this pod now; the event PodObserved or ObservationFailed follows."""

    uid: str
    cause: str


@dataclass(frozen=True)
class Relist:
    """List everything now, before the next list is due."""

    cause: str


@dataclass(frozen=True)
class WatchProcess:
    """Watch this process, whose end is ProcessExited; where it cannot be watched, WatchFailed follows."""

    id: str
    pid: int


@dataclass(frozen=True)
class UnwatchProcess:
    """Stop watching the process."""

    id: str


Instruction = PublishPod | WithdrawPod | MarkComplete | ObservePod | Relist | WatchProcess | UnwatchProcess
