"""Decides the next step of one pod: the single call that brings the runtime nearer to its spec, or what it waits for.
Called after every event that touches the pod. Only one step is decided at a time, so that a crash between two steps
loses no plan (pods.md 5.1, 5.5). Its parts are `starting`, `stopping` and `collecting`.
"""

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.podsync.core.pod.instructions import FetchNode, KillPod, LookAtPod, PreparePod, RunPodSandbox
from services.podsync.core.pod.observed import start_mark
from services.podsync.core.pod.published import mounted_volumes
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.saved import SavedContainer, with_container
from services.podsync.core.pod.situation import Step, StepInputs
from services.podsync.core.sync.actions import PodActions, compute_pod_actions, goes_on
from services.podsync.core.sync.collecting import (
    EVERY,
    collect,
    dead_init_instances,
    dead_instances,
    dead_sandboxes,
    remove_when_due,
    terminated,
)
from services.podsync.core.sync.container_kill import spec_grace
from services.podsync.core.sync.left_behind import go_on_beside
from services.podsync.core.sync.resizing import resize_pod
from services.podsync.core.sync.starting import run_owed_hook, start_containers
from services.podsync.core.sync.stopping import (
    after_failed_hook,
    kill_everything,
    kill_one,
    killing_events,
    restart_all,
    terminating,
)
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState
from shared.podspec.containers import ContainerKind, every_container

MAX_KILLS_WITH_GRACE = 3


def next_step(record: PodRecord, inputs: StepInputs) -> Step:
    """Return the next step of a pod with no call under way."""
    if record.retry.at > inputs.now:
        return Step(record=record, wake_at=record.retry.at, waits_for="retry of a failed call")
    if record.runs_after_end and record.observed.is_current:
        return Step(record=record, waits_for="every source to list its pods, before the pod is ended again")
    if record.saved.state is PodState.FINISHED and (record.saved.rejected or not record.saved.deleted):
        return _stays_listed(record, inputs)
    if not record.saved.admission_decided:
        if record.asks_for_node:
            return Step(record=record, call=FetchNode(uid=record.uid))
        return Step(record=record, waits_for="what admission depends on: node, runtime, list of pods")
    if not record.observed.is_current:
        return _look(record, inputs)
    match record.saved.state:
        case PodState.SYNC:
            return _sync(record, inputs)
        case PodState.TERMINATING:
            return terminating(record, inputs)
        case PodState.TERMINATED:
            return terminated(record, inputs)
        case PodState.FINISHED:
            return collect(record, inputs)


def _stays_listed(record: PodRecord, inputs: StepInputs) -> Step:
    """Return the step of a finished pod whose object still exists: it keeps its dead containers and the newest sandbox,
    unless it was evicted or they are garbage. A rejected pod has none."""
    if record.saved.rejected:
        return Step(record=record, done=record.saved.deleted and not inputs.still_listed)
    if not record.evicted and not record.garbage and not record.may_run_after_end:
        return Step(record=record)
    if not record.observed.is_current:
        return _look(record, inputs)
    step = Step(record=record)
    dead = dead_instances(record, keep=0 if record.evicted else EVERY) or dead_sandboxes(record, keep_newest=False)
    remove_when_due(step, dead, inputs)
    return step


def _look(record: PodRecord, inputs: StepInputs) -> Step:
    """Return the step that lists the pod in the runtime. For a pod that is new to the node there is nothing to list;
    its first starts are then saved with its first record. A static pod's list includes pods of the same name, because
    another agent's may not be in pleg's list yet."""
    new_to_node = record.new_to_node and not record.observed.since_start and inputs.runtime_listed
    if new_to_node and record.saved.state is PodState.SYNC:
        named = [
            spec["name"] for kind, spec in every_container(record.saved.pod) if kind is not ContainerKind.EPHEMERAL
        ]
        starting = SavedContainer(starting=start_mark(0))
        record = replace(record, saved=replace(record.saved, containers={str(name): starting for name in named}))
    namesakes = record.is_static and not record.observed.since_start and not new_to_node
    # The cgroup of a pod without resources of its own is read while a resize of its containers changes it.
    resources = bool(record.spec.get("resources") or record.saved.resize)
    call = LookAtPod(uid=record.uid, new_to_node=new_to_node, namesakes=namesakes, resources=resources)
    return Step(record=record, call=call)


def _sync(record: PodRecord, inputs: StepInputs) -> Step:
    if (step := _before_containers(record, inputs)) is not None:
        return step
    if not (step := restart_all(record, inputs)).is_open:
        return step
    actions = compute_pod_actions(step.record)
    of_pod = _kill_pod(step.record, actions) or _new_sandbox(step.record, actions, inputs)
    if of_pod is not None:
        return of_pod
    if not (step := after_failed_hook(step.record)).is_open:
        return step
    for kill in actions.kill:
        return kill_one(step.record, kill)
    if not (step := run_owed_hook(step.record)).is_open:
        return step
    resized = resize_pod(step.record, inputs)
    if resized.call is not None:
        return resized
    step = start_containers(resized.record, actions, inputs)
    step.events = [*resized.events, *step.events]
    if resized.wake_at:
        step.wake_earlier(resized.wake_at)
    if step.call is None:
        dead = dead_instances(step.record, keep=inputs.dead_instances_kept) or dead_sandboxes(
            step.record, keep_newest=True
        )
        remove_when_due(step, dead, inputs)
    return step


def _before_containers(record: PodRecord, inputs: StepInputs) -> Step | None:
    """Return the step for what a pod needs before its containers; None = it has all of it."""
    if inputs.victims_until > inputs.now:
        return Step(record=record, wake_at=inputs.victims_until, waits_for="the pods preempted for this one to stop")
    if inputs.name_taken:
        return Step(record=record, waits_for="another pod of the same name to finish")
    if not inputs.network_ready and not record.host_network:
        message = f"network is not ready: {inputs.network_message}"
        return Step(record=record, waits_for=message, events=[("Warning", "NetworkNotReady", message, "")])
    if not record.setup.prepared:
        return _without_cgroup(record)
    missing = unmounted_volumes(record)
    if missing:
        return Step(record=record, waits_for=f"volumes {', '.join(missing)}")
    if record.observed.interrupted:
        if (beside := go_on_beside(record)) is not None:
            return beside
        step = Step(record=record)
        remove_when_due(step, dead_instances(record, keep=inputs.dead_instances_kept), inputs)
        if step.call is None:
            step.waits_for = f"the runtime to remove containers: {record.retry.removal_error}"
        return step
    return None


def _without_cgroup(record: PodRecord) -> Step:
    """Return the step that makes directories and cgroup. Where containers run without the cgroup, and so without its
    limits, the pod is stopped first; its restart policy then applies as after any end, in a new sandbox."""
    if record.setup.cgroup_missing:
        call = kill_everything(record, spec_grace(record))
        if call is not None and _runs(record):
            return Step(record=record, call=call, events=killing_events(record))
        # The call that replaces a sandbox stops it once more, and records the event.
        setup = replace(record.setup, cgroup_missing=False, stopped_sandboxes=frozenset())
        record = replace(record, setup=setup)
    return Step(record=record, call=PreparePod(uid=record.uid, runs=_runs(record)))


def _runs(record: PodRecord) -> bool:
    """Return whether a regular container of the pod runs."""
    names = {str(spec["name"]) for spec in record.containers}
    return any(c.state is ContainerState.RUNNING and c.name in names for c in record.instances)


def _kill_pod(record: PodRecord, actions: PodActions) -> Step | None:
    """Return the step that kills everything of a sandbox that is replaced, or of a pod that ends; None = nothing to
    kill."""
    if not actions.kill_pod:
        return None
    # The sandbox of a container that the runtime cannot stop is killed with it after some tries.
    with_grace = record.retry.failures_of(KillPod) < MAX_KILLS_WITH_GRACE
    call = kill_everything(record, (record.saved.grace_seconds or spec_grace(record)) if with_grace else 0)
    if call is None:
        return None
    if actions.create_sandbox:  # what ran continues in the new sandbox, with any exit code
        every = (*record.init_containers, *record.containers)
        runs_once = record.spec.get("restartPolicy") == "Never"
        names = {str(spec["name"]) for spec in every if not runs_once or goes_on(record, spec)}
        saved = record.saved
        for name, instance in {c.name: c.id for c in record.alive if c.name in names}.items():
            container = replace(saved.container(name), replacing=instance)
            if record.init_containers:
                container = replace(container, held_back=instance)  # only the first init container starts at once
            elif container.held_back == instance:  # the earlier kill failed
                container = replace(container, held_back="")
            saved = with_container(saved, name, container)
        record = replace(record, saved=saved)
    changed = ("Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.", "")
    events = [changed] if actions.sandbox_changed else []
    return Step(record=record, call=call, events=[*events, *killing_events(record)])


def _new_sandbox(record: PodRecord, actions: PodActions, inputs: StepInputs) -> Step | None:
    """Return the step that makes a new sandbox, after the removal of dead init containers: the pod initializes again in
    it. None = no new sandbox is needed."""
    if not actions.create_sandbox:
        return None
    dead = dead_init_instances(record)
    if dead is not None:
        step = Step(record=record)
        remove_when_due(step, dead, inputs)
        return step
    return Step(record=record, call=RunPodSandbox(uid=record.uid, attempt=actions.sandbox_attempt))


def unmounted_volumes(record: PodRecord) -> tuple[str, ...]:
    """Return the desired volumes that are not mounted (yet)."""
    mounted = record.volumes.volumes if record.volumes else {}
    return tuple(
        name
        for name in mounted_volumes(record.saved)
        if name not in mounted or mounted[name].state is not VolumeState.MOUNTED
    )
