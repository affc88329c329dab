"""Decides what is done about a container that the runtime shows as ended and refuses to remove, because it has a task.
A StartContainer whose caller is killed leaves such a container: the task exists, but CRI does not show it, and neither
starts, stops nor removes the container ("cannot delete running task"). Three means follow each other: the removal
again, the end of the task by the runtime's own task service, then the sandbox's stop and another instance beside the
lost one. When the pod ends, the tasks are ended without a refused removal.
"""

from collections.abc import Iterable

from bus.messages.podsync import PodState
from services.podsync.core.pod.instructions import Call, EndTasks, LookAtPod, RemoveContainers, RemoveSandboxes
from services.podsync.core.pod.observed_in_runtime import outdated, start_was_requested
from services.podsync.core.pod.step import Step, StepInputs
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.container_kill import spec_grace
from services.podsync.core.sync.stopping import kill_everything
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState

MAX_REFUSALS = 2  # of the removal in a row, before the tasks are ended
MAX_ENDINGS = 3  # of the tasks without a successful removal, before the container is left behind
MAX_UNANSWERED_ENDINGS = 20  # tries in a row that the task service did not answer; each further try counts as an ending
MAX_LEFT_BEHIND = 5  # containers of one pod that the runtime still has
_MAX_NAMES = 3  # in a text


def end_tasks(tracked: TrackedPod, removal: Call) -> EndTasks | None:
    """Return the call that ends the tasks of what the runtime has refused to remove often enough; None = it has not.
    The stop of the sandbox comes later: it removes no task (containerd 1.6 to 2.1), and ends the pod's other
    containers."""
    if tracked.retry.refusals < MAX_REFUSALS:
        return None
    ids: tuple[str, ...] = ()
    if isinstance(removal, RemoveContainers):
        ids = tuple(container_id for container_id, _, _ in removal.containers)
        names = [f"container {name} ({container_id[:12]})" for container_id, name, _ in removal.containers]
    elif isinstance(removal, RemoveSandboxes):
        ids = removal.sandboxes
        names = [f"sandbox {sandbox_id[:12]}" for sandbox_id in removal.sandboxes]
    if not ids:
        return None
    return EndTasks(uid=tracked.uid, ids=ids, left=_listed(names), refusal=tracked.retry.removal_error)


def end_lost_tasks(step: Step, inputs: StepInputs) -> Step:
    """Return the given step of a pod that ends, or where that is done, a step that first ends the tasks which
    interrupted starts of the pod may have left. Such a task uses the pod's volumes, devices and CPUs, and containerd
    2.1 may keep its directory where the removal of the cgroup kills its process. The pod waits for one ending, whether
    it succeeds or fails."""
    tracked = step.tracked
    lost = (*tracked.observed.interrupted, *tracked.observed.left_behind, *_being_started(tracked))
    if not step.done or not lost or tracked.retry.endings:
        return step
    call = EndTasks(uid=tracked.uid, ids=tuple(c.id for c in lost), left=_listed(_names(lost)), refusal="")
    if tracked.retry.removal_at > inputs.now:
        waits_for = f"the runtime to end what interrupted starts may have left of {call.left}"
        return Step(tracked=tracked, wake_at=tracked.retry.removal_at, waits_for=waits_for)
    return Step(tracked=tracked, call=call)


def after_ending(tracked: TrackedPod, call: EndTasks) -> TrackedPod:
    """Return the pod after its tasks were ended, with an event where the runtime had refused a removal. The removal is
    tried again at once."""
    retry = replace(tracked.retry, removal_at=0.0, refusals=0, endings=_count_ending(tracked, call))
    tracked = replace(tracked, retry=retry)
    if not call.refusal:
        return tracked
    text = f"{call.left} could not be removed, and its task was ended by the runtime's task service: {call.refusal}"
    return tracked.with_event("Warning", "FailedSync", text, "")


def after_failed_ending(tracked: TrackedPod, call: EndTasks, code: str, error: str, retry_at: float) -> TrackedPod:
    """Return the pod after its tasks could not be ended: `code` is gRPC's, `error` the text, and `retry_at` in steady
    seconds the moment of the next removal. A timeout counts, too: a process that the kernel cannot kill may never
    end."""
    tries = sum(tracked.retry.failures_of(EndTasks, away=away) for away in (True, False))
    counts = code not in ("Unavailable", "Canceled") or tries > MAX_UNANSWERED_ENDINGS
    endings = _count_ending(tracked, call) if counts else tracked.retry.endings
    if code == "Unimplemented":  # the runtime is not containerd
        endings = max(MAX_ENDINGS, endings)
    # Too much of the pod is left behind already, or the pod ends.
    if endings == MAX_ENDINGS + 1 > tracked.retry.endings:
        text = f"{call.left} cannot be removed, and nothing ends its task: {error}"
        tracked = tracked.with_event("Warning", "FailedSync", text, "")
    return replace(tracked, retry=replace(tracked.retry, removal_at=retry_at, refusals=0, endings=endings))


def go_on_beside(tracked: TrackedPod) -> Step | None:
    """Return the step of a pod with interrupted containers that nothing has removed: it continues with other instances,
    in a new sandbox where that ends nothing else of the pod. None = the removal is tried (again)."""
    lost = tracked.observed.interrupted
    if tracked.retry.endings < MAX_ENDINGS or not tracked.retry.refusals:
        return None
    still_there = tuple(c.id for c in tracked.observed.left_behind)
    if len(still_there) + len(lost) > MAX_LEFT_BEHIND:
        return None
    runs_once = tracked.spec.get("restartPolicy", "Always") == "Never"
    if not tracked.alive and not (runs_once and tracked.instances):
        stop = kill_everything(tracked, spec_grace(tracked))
        if stop is not None:  # after it, the removal is tried once more
            return Step(tracked=replace(tracked, retry=replace(tracked.retry, refusals=0)), call=stop)
    names, why = _listed(_names(lost)), tracked.retry.removal_error
    text = f"{names} cannot be removed and was left behind, the pod goes on beside it: {why}"
    saved = replace(tracked.saved, left_behind=(*still_there, *(c.id for c in lost)))
    retry = replace(tracked.retry, refusals=0, endings=0)
    tracked = replace(tracked, saved=saved, retry=retry, observed=outdated(tracked.observed))
    return Step(tracked=tracked, call=LookAtPod(uid=tracked.uid), events=[("Warning", "FailedSync", text, "")])


def _count_ending(tracked: TrackedPod, call: EndTasks) -> int:
    """Return `Retry.endings` after one more of them. One that a refused removal caused before the pod was to end is not
    counted: it named other containers than the pod's end does."""
    late = bool(call.refusal) and tracked.saved.state is PodState.TERMINATING
    return tracked.retry.endings + (not late)


def _being_started(tracked: TrackedPod) -> list[Container]:
    """Return the instances that the runtime shows as created, and whose start may have been requested."""
    created = [c for c in tracked.instances if c.state is ContainerState.CREATED]
    return [c for c in created if start_was_requested(c, tracked.saved.container(c.name).starting)]


def _names(containers: Iterable[Container]) -> list[str]:
    return [f"container {c.name} ({c.id[:12]})" for c in containers]


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
