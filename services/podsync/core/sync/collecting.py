"""Decides when dead containers, dead sandboxes, and what a finished pod leaves are removed (pods.md 8.5, 11.4)."""

from collections.abc import Iterable

from services.podsync.core.pod.instructions import Call, ReleasePod, RemoveContainers, RemovePodLogs, RemoveSandboxes
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.situation import Step, StepInputs
from services.podsync.core.sync.left_behind import end_tasks
from shared.model.runtime import Container, ContainerState, SandboxState

EVERY = 1 << 31  # number of instances to keep that stands for all
GARBAGE_AFTER_SECONDS = 60.0  # the kubelet collects dead sandboxes and log directories once a minute


def remove_when_due(step: Step, dead: Call | None, inputs: StepInputs) -> None:
    """Put the removal `dead` into the step; after a failed removal it waits, and delays no other call. Where the
    runtime refuses it repeatedly because of a task, the task is ended first."""
    retry_at = step.record.retry.removal_at
    if dead is not None and (ending := end_tasks(step.record, dead)) is not None:
        step.call = ending
    elif dead is not None and retry_at > inputs.now:
        step.wake_earlier(retry_at)
    else:
        step.call = dead


def terminated(record: PodRecord, inputs: StepInputs) -> Step:
    """Return the next step of a terminated pod: it waits until its volumes are unmounted, then its cgroup is
    destroyed."""
    if record.volumes is not None and record.volumes.volumes:
        return Step(record=record, waits_for="volumes to be unmounted")
    if not inputs.volumes_known and record.spec.get("volumes"):
        return Step(record=record, waits_for="the list of mounted volumes")
    if not record.setup.released:
        return Step(record=record, call=ReleasePod(uid=record.uid))
    return Step(record=record, done=True)


def collect(record: PodRecord, inputs: StepInputs) -> Step:
    """Return the next step of a finished pod that no source lists: its dead containers are removed at once, sandbox and
    logs within a minute, as in the kubelet."""
    dead = dead_instances(record, keep=0)
    if dead is not None:
        step = Step(record=record)
        remove_when_due(step, dead, inputs)
        return step
    due = record.saved.finished_at + GARBAGE_AFTER_SECONDS
    if due > inputs.now and not record.saved.restart_requested and record.sandboxes:
        return Step(record=record, wake_at=due, waits_for="garbage collection")
    sandboxes = dead_sandboxes(record, keep_newest=False)
    if sandboxes is not None:
        step = Step(record=record)
        remove_when_due(step, sandboxes, inputs)
        return step
    if not record.setup.logs_removed:
        call = RemovePodLogs(uid=record.uid, name=record.name, namespace=record.namespace)
        return Step(record=record, call=call)
    if inputs.still_listed and not record.saved.restart_requested:
        return Step(record=record, waits_for="the API object to be deleted")
    return Step(record=record, done=True)


def dead_instances(record: PodRecord, *, keep: int) -> RemoveContainers | None:
    """Return the removal of exited instances that are garbage or beyond the `keep` newest of each container, of created
    ones with a newer instance, and of interrupted ones."""
    dead = list(record.observed.interrupted)
    if not keep:
        dead += record.observed.left_behind
    for name in dict.fromkeys(c.name for c in record.instances):
        instances = record.instances_of(name)
        exited = [c for c in instances if c.state is ContainerState.EXITED]
        dead += [c for c in exited[:keep] if c.id in record.garbage]
        dead += exited[keep:]
        dead += [c for c in instances[1 if keep else 0 :] if c.state is ContainerState.CREATED]
    return _removal(record, dead)


def _removal(record: PodRecord, dead: Iterable[Container]) -> RemoveContainers | None:
    containers = tuple((c.id, c.name, c.log_path) for c in dead)
    return RemoveContainers(uid=record.uid, containers=containers) if containers else None


def dead_init_instances(record: PodRecord) -> RemoveContainers | None:
    """Return the removal of all instances of init containers: in a new sandbox the pod initializes again."""
    names = {str(spec["name"]) for spec in record.init_containers}
    return _removal(record, (c for c in record.instances if c.name in names))


def dead_sandboxes(record: PodRecord, *, keep_newest: bool) -> RemoveSandboxes | None:
    """Return the removal of sandboxes that are stopped and have no container."""
    used = {c.sandbox_id for c in (*record.instances, *record.observed.left_behind)}
    candidates = record.sandboxes[1:] if keep_newest else record.sandboxes
    dead = tuple(s.id for s in candidates if s.state is SandboxState.NOTREADY and s.id not in used)
    return RemoveSandboxes(uid=record.uid, sandboxes=dead) if dead else None
