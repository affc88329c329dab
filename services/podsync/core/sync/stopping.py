"""Decides what of a pod is stopped: all of it, one container, or every container so that all start again (pods.md 5.3,
5.7, 8.1-8.3).
`container_kill` decides how one container is stopped.
"""

from bus.messages.podsync import PodState
from services.podsync.core.pod.instructions import KillContainer, KillPod, RemoveContainers
from services.podsync.core.pod.lifecycle import grace_left, shutdown_grace_left
from services.podsync.core.pod.saved import ShutdownStop, with_container
from services.podsync.core.pod.step import Step, StepInputs
from services.podsync.core.pod.tracked_pod import PodEvent, TrackedPod
from services.podsync.core.sync.container_kill import ContainerKill, container_stop, spec_grace, stops_of_pod
from services.podsync.core.sync.restart_rules import restarts_all
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, SandboxState


def kill_everything(tracked: TrackedPod, grace: int) -> KillPod | None:
    """Return the call that stops what runs within `grace` seconds, then every sandbox that we have not stopped: one
    whose pause process died still has its network. None = nothing is left to stop."""
    standing = tuple(
        s.id for s in tracked.sandboxes if s.state is SandboxState.READY or s.id not in tracked.setup.stopped_sandboxes
    )
    stops = stops_of_pod(tracked, grace)
    if not stops and not standing:
        return None
    grace_of_pod = tracked.saved.grace_seconds if tracked.saved.state is PodState.TERMINATING else grace
    return KillPod(uid=tracked.uid, containers=stops, sandboxes=standing, grace_seconds=grace_of_pod)


def killing_events(tracked: TrackedPod) -> list[PodEvent]:
    """Return an event for each container of the spec that is about to be stopped with its pod."""
    known = [c.name for c in tracked.alive if tracked.container(c.name) is not None]
    return [("Normal", "Killing", f"Stopping container {name}", name) for name in known]


def terminating(tracked: TrackedPod, inputs: StepInputs) -> Step:
    """Return the step of a pod that ends: it stops everything within what is left of the grace."""
    call = kill_everything(tracked, grace_left(tracked, inputs.now))
    if call is None:
        return Step(tracked=tracked, done=True)
    return Step(tracked=tracked, call=call, events=killing_events(tracked))


def stop_for_shutdown(tracked: TrackedPod, stop: ShutdownStop, now: float) -> Step:
    """Return the step of a pod that stops because the machine shuts down. Its containers end in order to start again,
    with any exit code: they do so after the boot, whatever the restart policy is."""
    call = kill_everything(tracked, shutdown_grace_left(stop, now))
    if call is None:
        if not stop.stopped:
            tracked = replace(tracked, saved=replace(tracked.saved, shutdown=replace(stop, stopped=True)))
        return Step(tracked=tracked, waits_for="the machine to shut down")
    saved, names = tracked.saved, {str(spec["name"]) for spec in (*tracked.init_containers, *tracked.containers)}
    for name, instance in {c.name: c.id for c in tracked.alive if c.name in names}.items():
        container = replace(saved.container(name), hook_owed="", hook_failed="", device_failed="")
        saved = with_container(saved, name, replace(container, replacing=instance, held_back=""))
    tracked = tracked if saved is tracked.saved else replace(tracked, saved=saved)
    call = replace(call, grace_seconds=stop.grace_seconds)
    return Step(tracked=tracked, call=call, events=killing_events(tracked))


def kill_one(tracked: TrackedPod, kill: ContainerKill) -> Step:
    """Return the step that stops one container, and notes where another instance is to replace it."""
    instance = kill.instance
    if kill.restart:
        container = replace(tracked.saved.container(instance.name), replacing=instance.id, held_back="")
        tracked = replace(tracked, saved=with_container(tracked.saved, instance.name, container))
    stop = container_stop(tracked, instance, spec_grace(tracked) if kill.grace is None else kill.grace)
    events = [("Normal", "Killing", kill.message, instance.name)]
    return Step(tracked=tracked, call=KillContainer(uid=tracked.uid, stop=stop), events=events)


def after_failed_hook(tracked: TrackedPod) -> Step:
    """Return the step that stops the container whose postStart has failed; its restart policy applies as after any end.
    The step has no call where there is none to stop."""
    running = {c.id: c for c in tracked.instances if c.state is ContainerState.RUNNING}
    saved = tracked.saved
    for name, container in saved.containers.items():
        if container.hook_failed and container.hook_failed not in running:
            saved = with_container(saved, name, replace(container, hook_failed=""))
    tracked = tracked if saved is tracked.saved else replace(tracked, saved=saved)
    for container in saved.containers.values():
        if container.hook_failed:
            instance = running[container.hook_failed]
            return kill_one(tracked, ContainerKill(instance=instance, message="FailedPostStartHook", restart=False))
    return Step(tracked=tracked)


def restart_all(tracked: TrackedPod, inputs: StepInputs) -> Step:
    """Return the step for RestartAllContainers, after an exit whose rule restarts all containers: every one is stopped
    and removed, those with the exit last, and the logs stay. The restart is saved before the first stop.
    The step has neither call nor wait where there is nothing to restart."""
    triggers = _triggers(tracked)
    if triggers and not tracked.saved.restarting_all:
        tracked = replace(tracked, saved=replace(tracked.saved, restarting_all=True))
    if not tracked.saved.restarting_all:
        return Step(tracked=tracked)
    init = [str(spec["name"]) for spec in tracked.init_containers]
    regular = [str(spec["name"]) for spec in tracked.containers]
    alive = [c for c in tracked.alive if c.name in {*init, *regular}]
    if alive:
        stops = tuple(container_stop(tracked, c, 0) for c in alive)
        events = [("Normal", "Killing", "killing", c.name) for c in alive]
        call = KillPod(uid=tracked.uid, containers=stops, sandboxes=())
        return Step(tracked=tracked, call=call, events=events)
    last = [*(n for n in regular if n in triggers), *(n for n in init if n in triggers)]
    names = [*(n for n in [*regular, *init] if n not in triggers), *last]
    gone = tuple((c.id, c.name, c.log_path) for name in names for c in tracked.instances_of(name))
    if gone:
        if tracked.retry.removal_at > inputs.now:
            return Step(tracked=tracked, wake_at=tracked.retry.removal_at, waits_for="every container to be removed")
        removal = RemoveContainers(uid=tracked.uid, containers=gone, keep_logs=True)
        return Step(tracked=tracked, call=removal)
    return Step(tracked=replace(tracked, saved=replace(tracked.saved, restarting_all=False)))


def _triggers(tracked: TrackedPod) -> set[str]:
    """Return the containers whose newest instance has ended in a way that restarts all."""
    triggers = set()
    for spec in [*tracked.init_containers, *tracked.containers]:
        newest: Container | None = next(iter(tracked.instances_of(str(spec["name"]))), None)
        ended = newest is not None and newest.state is ContainerState.EXITED
        if newest is not None and ended and restarts_all(tracked, spec, newest.exit_code):
            triggers.add(str(spec["name"]))
    return triggers
