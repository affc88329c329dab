"""Has the instructions of the observation of pods, which are performed in their order."""

from msgspec import Struct

from shared.model.runtime import RuntimePod


class PublishPod(Struct, frozen=True):
    """Publish the pod on `runtime.pods`."""

    pod: RuntimePod
    cause: str


class WithdrawPod(Struct, frozen=True):
    """Delete the pod from `runtime.pods`: the runtime no longer has it."""

    uid: str
    cause: str


class MarkComplete(Struct, frozen=True):
    """Mark `runtime.pods` complete: everything the runtime has is published."""


class ObservePod(Struct, frozen=True):
    """Look at this pod now; the event PodObserved or ObservationFailed follows."""

    uid: str
    cause: str


class Relist(Struct, frozen=True):
    """List everything now, before the next list is due."""

    cause: str


class WatchProcess(Struct, frozen=True):
    """Watch this process, whose end is ProcessExited; where it cannot be watched, WatchFailed follows."""

    id: str
    pid: int


class UnwatchProcess(Struct, frozen=True):
    """Stop watching the process."""

    id: str


Instruction = PublishPod | WithdrawPod | MarkComplete | ObservePod | Relist | WatchProcess | UnwatchProcess
