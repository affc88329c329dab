"""Decides whether the call under way of a pod that is to end is interrupted (pods.md 4.4)."""

from bus.messages.podsync import PodState
from services.podsync.core.pod.instructions import (
    AllocatePodDevices,
    AskPreferredDevices,
    CreateContainer,
    FetchNode,
    InspectImage,
    KillContainer,
    KillPod,
    PullImage,
    RunPodSandbox,
    RunPostStartHook,
)
from services.podsync.core.pod.tracked_pod import TrackedPod

_ONLY_WAIT = (
    PullImage | KillContainer | RunPostStartHook | InspectImage | FetchNode | AskPreferredDevices | AllocatePodDevices
)
ENDS_WHILE_IT_READS = RunPodSandbox | CreateContainer  # such a call is interrupted only before it calls the runtime


def is_kept_from_ending(tracked: TrackedPod) -> bool:
    """Return whether the pod is to end, or to stop for a shutdown, and its call under way only waits: for an image, a
    hook, a read of the API server, device plugins, for one container to be stopped first, or for a grace period longer
    than the one that holds now. The other containers would be stopped only after that."""
    ends, stop = tracked.saved.state is PodState.TERMINATING, tracked.saved.shutdown
    if not (ends or stop is not None) or tracked.given_up:
        return False
    if isinstance(tracked.call, KillPod):
        grace = tracked.saved.grace_seconds if ends or stop is None else stop.grace_seconds
        return grace < tracked.call.grace_seconds
    return isinstance(tracked.call, _ONLY_WAIT | ENDS_WHILE_IT_READS)
