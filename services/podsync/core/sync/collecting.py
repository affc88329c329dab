"""Decides when dead containers, dead sandboxes, and what a finished pod leaves are removed (pods.md 8.5, 11.4)."""

from collections.abc import Iterable

from services.podsync.core.pod.awaited_claims import describe_held
from services.podsync.core.pod.instructions import Call, ReleasePod, RemoveContainers, RemovePodLogs, RemoveSandboxes
from services.podsync.core.pod.step import Step, StepInputs
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.left_behind import end_tasks
from shared.model.runtime import Container, ContainerState, SandboxState

EVERY = 1 << 31  # number of instances to keep that stands for all
GARBAGE_AFTER_SECONDS = 60.0  # the kubelet collects dead sandboxes and log directories once a minute


def remove_when_due(step: Step, dead: Call | None, inputs: StepInputs) -> None:
    """Put the removal `dead` into the step; after a failed removal it waits, and delays no other call. Where the
    runtime refuses it repeatedly because of a task, the task is ended first."""
    retry_at = step.tracked.retry.removal_at
    if dead is not None and (ending := end_tasks(step.tracked, dead)) is not None:
        step.call = ending
    elif dead is not None and retry_at > inputs.now:
        step.wake_earlier(retry_at)
    else:
        step.call = dead


def terminated(tracked: TrackedPod, inputs: StepInputs) -> Step:
    """Return the next step of a terminated pod: it waits until its volumes are unmounted and its resource claims
    unprepared, then its cgroup is destroyed."""
    if tracked.volumes is not None and tracked.volumes.volumes:
        return Step(tracked=tracked, waits_for="volumes to be unmounted")
    if not inputs.volumes_known and tracked.spec.get("volumes"):
        return Step(tracked=tracked, waits_for="the list of mounted volumes")
    if claims := describe_held(tracked):
        return Step(tracked=tracked, waits_for=claims)
    if not tracked.setup.released:
        return Step(tracked=tracked, call=ReleasePod(uid=tracked.uid))
    return Step(tracked=tracked, done=True)


def collect(tracked: TrackedPod, inputs: StepInputs) -> Step:
    """Return the next step of a finished pod that no source lists: its dead containers are removed at once, sandbox and
    logs within a minute, as in the kubelet."""
    dead = dead_instances(tracked, keep=0)
    if dead is not None:
        step = Step(tracked=tracked)
        remove_when_due(step, dead, inputs)
        return step
    due = tracked.saved.finished_at + GARBAGE_AFTER_SECONDS
    if due > inputs.now and not tracked.saved.restart_requested and tracked.sandboxes:
        return Step(tracked=tracked, wake_at=due, waits_for="garbage collection")
    sandboxes = dead_sandboxes(tracked, keep_newest=False)
    if sandboxes is not None:
        step = Step(tracked=tracked)
        remove_when_due(step, sandboxes, inputs)
        return step
    if not tracked.setup.logs_removed:
        call = RemovePodLogs(uid=tracked.uid, name=tracked.name, namespace=tracked.namespace)
        return Step(tracked=tracked, call=call)
    if inputs.still_listed and not tracked.saved.restart_requested:
        return Step(tracked=tracked, waits_for="the API object to be deleted")
    return Step(tracked=tracked, done=True)


def dead_instances(tracked: TrackedPod, *, keep: int) -> RemoveContainers | None:
    """Return the removal of exited instances that are garbage or beyond the `keep` newest of each container, of created
    ones with a newer instance, and of interrupted ones."""
    dead = list(tracked.observed.interrupted)
    if not keep:
        dead += tracked.observed.left_behind
    for name in dict.fromkeys(c.name for c in tracked.instances):
        instances = tracked.instances_of(name)
        exited = [c for c in instances if c.state is ContainerState.EXITED]
        dead += [c for c in exited[:keep] if c.id in tracked.garbage]
        dead += exited[keep:]
        dead += [c for c in instances[1 if keep else 0 :] if c.state is ContainerState.CREATED]
    return _removal(tracked, dead)


def _removal(tracked: TrackedPod, dead: Iterable[Container]) -> RemoveContainers | None:
    containers = tuple((c.id, c.name, c.log_path) for c in dead)
    return RemoveContainers(uid=tracked.uid, containers=containers) if containers else None


def dead_init_instances(tracked: TrackedPod) -> RemoveContainers | None:
    """Return the removal of all instances of init containers: in a new sandbox the pod initializes again."""
    names = {str(spec["name"]) for spec in tracked.init_containers}
    return _removal(tracked, (c for c in tracked.instances if c.name in names))


def dead_sandboxes(tracked: TrackedPod, *, keep_newest: bool) -> RemoveSandboxes | None:
    """Return the removal of sandboxes that are stopped and have no container."""
    used = {c.sandbox_id for c in (*tracked.instances, *tracked.observed.left_behind)}
    candidates = tracked.sandboxes[1:] if keep_newest else tracked.sandboxes
    dead = tuple(s.id for s in candidates if s.state is SandboxState.NOTREADY and s.id not in used)
    return RemoveSandboxes(uid=tracked.uid, sandboxes=dead) if dead else None
