"""The next step of one pod: the single call that brings the world nearer to what is wanted, or what it waits for.

Called after every event that touches the pod, on what is known then; nothing is planned further ahead, so a crash
between two steps loses no plan (pods.md 5.1, 5.5). Its parts are `starting`, `stopping` and `collecting`.
"""

from collections.abc import Mapping
from dataclasses import replace

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.podsync.core.pod.instructions import Call, FetchNode, LookAtPod, PreparePod, RunPodSandbox
from services.podsync.core.pod.observed import start_mark
from services.podsync.core.pod.published import mounted_volumes
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.situation import Step, World
from services.podsync.core.sync.actions import PodActions, compute_pod_actions
from services.podsync.core.sync.collecting import (
    collect,
    dead_init_instances,
    dead_instances,
    dead_sandboxes,
    remove_when_due,
    terminated,
)
from services.podsync.core.sync.container_kill import spec_grace
from services.podsync.core.sync.starting import hook_owed, start_containers
from services.podsync.core.sync.stopping import (
    after_failed_hook,
    kill_everything,
    kill_one,
    killing_events,
    restart_all,
    terminating,
)
from shared.model.runtime import ContainerState
from shared.podspec.containers import ContainerKind, every_container

PATIENT_KILLS = 3


def next_step(record: PodRecord, world: World) -> Step:
    """The next step of a pod with no call under way."""
    if record.retry.at > world.now:
        return Step(wake_at=record.retry.at, waits_for="retry of a failed call")
    if record.saved.state is PodState.FINISHED and (record.saved.rejected or not record.saved.deleted):
        return Step(done=record.saved.deleted and not world.still_listed)  # nothing was ever made of a rejected pod
    if not record.saved.admission_decided:
        if record.asks_for_node:
            return Step(call=FetchNode(uid=record.uid))
        return Step(waits_for="news of the node, to be judged by")
    if not record.observed.is_current:
        return Step(call=_look(record, world))
    match record.saved.state:
        case PodState.SYNC:
            return _sync(record, world)
        case PodState.TERMINATING:
            return terminating(record, world)
        case PodState.TERMINATED:
            return terminated(record, world)
        case PodState.FINISHED:
            return collect(record, world)


def _look(record: PodRecord, world: World) -> Call:
    """Of a pod that nobody ever heard of there is nothing to see; its first starts are noted with the first save."""
    unheard_of = record.unheard_of and not record.observed.since_start and world.runtime_listed
    if unheard_of and record.saved.state is PodState.SYNC:
        named = [
            spec["name"] for kind, spec in every_container(record.saved.pod) if kind is not ContainerKind.EPHEMERAL
        ]
        record.saved = replace(record.saved, starting={str(name): start_mark(0) for name in named})
    return LookAtPod(uid=record.uid, unheard_of=unheard_of)


def _sync(record: PodRecord, world: World) -> Step:
    held_back = _before_containers(record, world) or restart_all(record, world)
    if held_back is not None:
        return held_back
    actions = compute_pod_actions(record)
    step = _kill_pod(record, actions) or _new_sandbox(record, actions, world) or after_failed_hook(record)
    if step is not None:
        return step
    for kill in actions.kill:
        return kill_one(record, kill)
    hook = hook_owed(record)
    if hook is not None:
        return Step(call=hook)
    step = start_containers(record, actions, world)
    if step.call is None:
        dead = dead_instances(record, keep=1) or dead_sandboxes(record, keep_newest=True)
        remove_when_due(record, dead, step, world)
    return step


def _before_containers(record: PodRecord, world: World) -> Step | None:
    """What a pod has to have before anything of it is decided; None = it has it all."""
    if world.victims_until > world.now:
        return Step(wake_at=world.victims_until, waits_for="the pods preempted for this one to stop")
    if world.name_taken:
        return Step(waits_for="another pod of the same name to finish")
    if not world.network_ready and not record.host_network:
        message = f"network is not ready: {world.network_message}"
        return Step(waits_for=message, events=[("Warning", "NetworkNotReady", message, "")])
    if not record.prepared:
        return _out_of_no_cgroup(record) or Step(call=PreparePod(uid=record.uid, runs=_runs(record)))
    missing = unmounted_volumes(record)
    if missing:
        return Step(waits_for=f"volumes {', '.join(missing)}")
    if record.observed.interrupted:
        step = Step()
        remove_when_due(record, dead_instances(record, keep=1), step, world)
        return step
    return None


def _out_of_no_cgroup(record: PodRecord) -> Step | None:
    """Stop the whole pod, of which containers run and whose cgroup is missing: nothing holds them to its limits. What
    its restart policy makes of that is as after any end, in a new sandbox; None = nothing runs any more."""
    if not record.cgroup_missing:
        return None
    call = kill_everything(record, spec_grace(record))
    if call is None or not _runs(record):
        record.cgroup_missing = False
        record.stopped_sandboxes.clear()  # what takes its place stops it once more, and tells of it
        return None
    return Step(call=call, events=killing_events(record))


def _runs(record: PodRecord) -> bool:
    """A regular container of the pod runs."""
    names = {str(spec["name"]) for spec in record.containers}
    return any(c.state is ContainerState.RUNNING and c.name in names for c in record.instances)


def _kill_pod(record: PodRecord, actions: PodActions) -> Step | None:
    """Everything of a sandbox that is not to stay, or of a pod of which nothing is to run on."""
    if not actions.kill_pod:
        return None
    # A container that cannot be stopped in time keeps its sandbox for some tries, not for ever.
    patient = record.retry.failures < PATIENT_KILLS
    call = kill_everything(record, (record.saved.grace_seconds or spec_grace(record)) if patient else 0)
    if call is None:
        return None
    if actions.create_sandbox:  # what ran goes on in the new one, however it takes being stopped
        names = {str(spec["name"]) for spec in (*record.init_containers, *record.containers)}
        replaced = {c.name: c.id for c in record.alive if c.name in names}
        held_back: Mapping[str, str] = record.saved.held_back
        if record.init_containers:
            held_back = {**held_back, **replaced}  # only the first of those starts at once
        else:  # those that a kill before this one, which failed, has left alive are killed now
            held_back = {name: c for name, c in held_back.items() if replaced.get(name) != c}
        record.saved = replace(record.saved, replacing={**record.saved.replacing, **replaced}, held_back=held_back)
    changed = ("Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.", "")
    events = [changed] if actions.sandbox_changed else []
    return Step(call=call, events=[*events, *killing_events(record)])


def _new_sandbox(record: PodRecord, actions: PodActions, world: World) -> Step | None:
    """In a new sandbox the pod initialises again, so what is left of that goes first."""
    if not actions.create_sandbox:
        return None
    dead = dead_init_instances(record)
    if dead is not None:
        step = Step()
        remove_when_due(record, dead, step, world)
        return step
    return Step(call=RunPodSandbox(uid=record.uid, attempt=actions.sandbox_attempt))


def unmounted_volumes(record: PodRecord) -> tuple[str, ...]:
    """Wanted volumes that are not mounted (yet)."""
    mounted = record.volumes.volumes if record.volumes else {}
    return tuple(
        name
        for name in mounted_volumes(record.saved)
        if name not in mounted or mounted[name].state is not VolumeState.MOUNTED
    )
