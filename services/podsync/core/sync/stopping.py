"""Decides what of a pod is stopped: all of it, one container, or every container so that all start again (pods.md 5.3,
5.7, 8.1-8.3).
`container_kill` decides how one container is stopped.
"""

from bus.messages.podsync import PodState
from services.podsync.core.pod.instructions import KillContainer, KillPod, RemoveContainers
from services.podsync.core.pod.lifecycle import grace_left
from services.podsync.core.pod.record import PodEvent, PodRecord
from services.podsync.core.pod.saved import with_container
from services.podsync.core.pod.situation import Step, StepInputs
from services.podsync.core.sync.container_kill import ContainerKill, container_stop, spec_grace, stops_of_pod
from services.podsync.core.sync.restart_rules import restarts_all
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, SandboxState


def kill_everything(record: PodRecord, grace: int) -> KillPod | None:
    """Return the call that stops what runs within `grace` seconds, then every sandbox that we have not stopped: one
    whose pause process died still has its network. None = nothing is left to stop."""
    standing = tuple(
        s.id for s in record.sandboxes if s.state is SandboxState.READY or s.id not in record.setup.stopped_sandboxes
    )
    stops = stops_of_pod(record, grace)
    if not stops and not standing:
        return None
    grace_of_pod = record.saved.grace_seconds if record.saved.state is PodState.TERMINATING else grace
    return KillPod(uid=record.uid, containers=stops, sandboxes=standing, grace_seconds=grace_of_pod)


def killing_events(record: PodRecord) -> list[PodEvent]:
    """Return an event for each container of the spec that is about to be stopped with its pod."""
    known = [c.name for c in record.alive if record.container(c.name) is not None]
    return [("Normal", "Killing", f"Stopping container {name}", name) for name in known]


def terminating(record: PodRecord, inputs: StepInputs) -> Step:
    """Return the step of a pod that ends: it stops everything within what is left of the grace."""
    call = kill_everything(record, grace_left(record, inputs.now))
    if call is None:
        return Step(record=record, done=True)
    return Step(record=record, call=call, events=killing_events(record))


def kill_one(record: PodRecord, kill: ContainerKill) -> Step:
    """Return the step that stops one container, and notes where another instance is to replace it."""
    instance = kill.instance
    if kill.restart:
        container = replace(record.saved.container(instance.name), replacing=instance.id, held_back="")
        record = replace(record, saved=with_container(record.saved, instance.name, container))
    stop = container_stop(record, instance, spec_grace(record) if kill.grace is None else kill.grace)
    events = [("Normal", "Killing", kill.message, instance.name)]
    return Step(record=record, call=KillContainer(uid=record.uid, stop=stop), events=events)


def after_failed_hook(record: PodRecord) -> Step:
    """Return the step that stops the container whose postStart has failed; its restart policy applies as after any end.
    The step has no call where there is none to stop."""
    running = {c.id: c for c in record.instances if c.state is ContainerState.RUNNING}
    saved = record.saved
    for name, container in saved.containers.items():
        if container.hook_failed and container.hook_failed not in running:
            saved = with_container(saved, name, replace(container, hook_failed=""))
    record = record if saved is record.saved else replace(record, saved=saved)
    for container in saved.containers.values():
        if container.hook_failed:
            instance = running[container.hook_failed]
            return kill_one(record, ContainerKill(instance=instance, message="FailedPostStartHook", restart=False))
    return Step(record=record)


def restart_all(record: PodRecord, inputs: StepInputs) -> Step:
    """Return the step for RestartAllContainers, after an exit whose rule restarts all containers: every one is stopped
    and removed, those with the exit last, and the logs stay. The record of the restart is saved before the first stop.
    The step has neither call nor wait where there is nothing to restart."""
    triggers = _triggers(record)
    if triggers and not record.saved.restarting_all:
        record = replace(record, saved=replace(record.saved, restarting_all=True))
    if not record.saved.restarting_all:
        return Step(record=record)
    init = [str(spec["name"]) for spec in record.init_containers]
    regular = [str(spec["name"]) for spec in record.containers]
    alive = [c for c in record.alive if c.name in {*init, *regular}]
    if alive:
        stops = tuple(container_stop(record, c, 0) for c in alive)
        events = [("Normal", "Killing", "killing", c.name) for c in alive]
        call = KillPod(uid=record.uid, containers=stops, sandboxes=())
        return Step(record=record, call=call, events=events)
    last = [*(n for n in regular if n in triggers), *(n for n in init if n in triggers)]
    names = [*(n for n in [*regular, *init] if n not in triggers), *last]
    gone = tuple((c.id, c.name, c.log_path) for name in names for c in record.instances_of(name))
    if gone:
        if record.retry.removal_at > inputs.now:
            return Step(record=record, wake_at=record.retry.removal_at, waits_for="every container to be removed")
        removal = RemoveContainers(uid=record.uid, containers=gone, keep_logs=True)
        return Step(record=record, call=removal)
    return Step(record=replace(record, saved=replace(record.saved, restarting_all=False)))


def _triggers(record: PodRecord) -> set[str]:
    """Return the containers whose newest instance has ended in a way that restarts all."""
    triggers = set()
    for spec in [*record.init_containers, *record.containers]:
        newest: Container | None = next(iter(record.instances_of(str(spec["name"]))), None)
        ended = newest is not None and newest.state is ContainerState.EXITED
        if newest is not None and ended and restarts_all(record, spec, newest.exit_code):
            triggers.add(str(spec["name"]))
    return triggers
