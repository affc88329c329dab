"""Decides what is done about a container that the runtime shows as ended and refuses to remove, because it has a task.
A StartContainer whose caller is killed leaves such a container: the task exists, but CRI does not show it, and neither
starts, stops nor removes the container ("cannot delete running task"). Three means follow each other: the removal
again, the end of the task by the runtime's own task service, then the sandbox's stop and another instance beside the
lost one.
"""

from services.podsync.core.pod.instructions import Call, EndTasks, LookAtPod, RemoveContainers, RemoveSandboxes
from services.podsync.core.pod.observed import outdated
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.situation import Step
from services.podsync.core.sync.container_kill import spec_grace
from services.podsync.core.sync.stopping import kill_everything
from shared.model.frozen_copy import replace

REFUSALS = 2  # of the removal in a row, before the tasks are ended
ENDINGS = 3  # of the tasks without a successful removal, before the container is left behind
MAX_LEFT_BEHIND = 5  # containers of one pod that the runtime still has
_MAX_NAMES = 3  # in a text


def end_tasks(record: PodRecord, removal: Call) -> EndTasks | None:
    """Return the call that ends the tasks of what the runtime has refused to remove often enough; None = it has not.
    The stop of the sandbox comes later: it removes no task (containerd 1.6 to 2.1), and ends the pod's other
    containers."""
    if record.retry.refusals < REFUSALS:
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
    return EndTasks(uid=record.uid, ids=ids, left=_listed(names), refusal=record.retry.removal_error)


def go_on_beside(record: PodRecord) -> Step | None:
    """Return the step of a pod with interrupted containers that nothing has removed: it continues with other instances,
    in a new sandbox where that ends nothing else of the pod. None = the removal is tried (again)."""
    lost = record.observed.interrupted
    if record.retry.endings < ENDINGS or not record.retry.refusals:
        return None
    still_there = tuple(c.id for c in record.observed.left_behind)
    if len(still_there) + len(lost) > MAX_LEFT_BEHIND:
        return None
    runs_once = record.spec.get("restartPolicy", "Always") == "Never"
    if not record.alive and not (runs_once and record.instances):
        stop = kill_everything(record, spec_grace(record))
        if stop is not None:  # after it, the removal is tried once more
            return Step(record=replace(record, retry=replace(record.retry, refusals=0)), call=stop)
    names = _listed([f"container {c.name} ({c.id[:12]})" for c in lost])
    text = f"{names} cannot be removed and was left behind, the pod goes on beside it: {record.retry.removal_error}"
    saved = replace(record.saved, left_behind=(*still_there, *(c.id for c in lost)))
    retry = replace(record.retry, refusals=0, endings=0)
    record = replace(record, saved=saved, retry=retry, observed=outdated(record.observed))
    return Step(record=record, call=LookAtPod(uid=record.uid), events=[("Warning", "FailedSync", text, "")])


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
