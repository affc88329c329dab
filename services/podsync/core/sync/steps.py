"""Decides the next step of one pod: the single call that brings the runtime nearer to its spec, or what it waits for.
Called after every event that touches the pod. Only one step is decided at a time, so that a crash between two steps
loses no plan (pods.md 5.1, 5.5). Its parts are `starting`, `stopping` and `collecting`.
"""

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.podsync.core.pod.awaited_claims import describe_unprepared
from services.podsync.core.pod.instructions import KillPod, LookAtPod, PreparePod, RunPodSandbox
from services.podsync.core.pod.observed_in_runtime import start_mark
from services.podsync.core.pod.published_items import mounted_volumes
from services.podsync.core.pod.saved import SavedContainer, with_container
from services.podsync.core.pod.step import WAITS_FOR_TURN, Step, StepInputs
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.before_verdict import step_before_verdict
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
from services.podsync.core.sync.device_health import stop_after_device_failure
from services.podsync.core.sync.kills_and_starts import PodActions, compute_pod_actions, goes_on
from services.podsync.core.sync.left_behind import end_lost_tasks, go_on_beside
from services.podsync.core.sync.resizing import resize_pod
from services.podsync.core.sync.starting import run_owed_hook, start_containers
from services.podsync.core.sync.stopping import (
    after_failed_hook,
    kill_everything,
    kill_one,
    killing_events,
    restart_all,
    stop_for_shutdown,
    terminating,
)
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState
from shared.podspec.containers import ContainerKind, every_container

MAX_KILLS_WITH_GRACE = 3


def next_step(tracked: TrackedPod, inputs: StepInputs) -> Step:
    """Return the next step of a pod with no call under way."""
    if tracked.retry.at > inputs.now:
        return Step(tracked=tracked, wake_at=tracked.retry.at, waits_for="retry of a failed call")
    if tracked.runs_after_end and tracked.observed.is_current:
        return Step(tracked=tracked, waits_for="every source to list its pods, before the pod is ended again")
    if tracked.saved.state is PodState.FINISHED and (tracked.saved.rejected or not tracked.saved.deleted):
        return _stays_listed(tracked, inputs)
    if not tracked.saved.admission_decided:
        return step_before_verdict(tracked, inputs)
    if not tracked.observed.is_current:
        if not tracked.new_to_node or tracked.observed.since_start or not inputs.runtime_listed:
            return _look(tracked)
        tracked = _without_look(tracked)
    match tracked.saved.state:
        case PodState.SYNC if tracked.saved.shutdown is not None:
            return stop_for_shutdown(tracked, tracked.saved.shutdown, inputs.now)
        case PodState.SYNC:
            return _sync(tracked, inputs)
        case PodState.TERMINATING:
            return end_lost_tasks(terminating(tracked, inputs), inputs)
        case PodState.TERMINATED:
            return terminated(tracked, inputs)
        case PodState.FINISHED:
            return collect(tracked, inputs)


def _stays_listed(tracked: TrackedPod, inputs: StepInputs) -> Step:
    """Return the step of a finished pod whose object still exists: it keeps its dead containers and the newest sandbox,
    unless it was evicted or they are garbage. A rejected pod has none."""
    if tracked.saved.rejected and tracked.saved.placement.containers and not tracked.observed.since_start:
        return _look(tracked)  # an earlier agent gave it CPUs, which are free once it does not run
    if tracked.saved.rejected:
        return Step(tracked=tracked, done=tracked.saved.deleted and not inputs.still_listed)
    if not tracked.evicted and not tracked.garbage and not tracked.may_run_after_end:
        return Step(tracked=tracked)
    if not tracked.observed.is_current:
        return _look(tracked)
    step = Step(tracked=tracked)
    dead = dead_instances(tracked, keep=0 if tracked.evicted else EVERY) or dead_sandboxes(tracked, keep_newest=False)
    remove_when_due(step, dead, inputs)
    return step


def _look(tracked: TrackedPod) -> Step:
    """Return the step that lists the pod in the runtime. A static pod's list includes pods of the same name, because
    another agent's may not be in pleg's list yet."""
    namesakes = tracked.is_static and not tracked.observed.since_start
    # The cgroup of a pod without resources of its own is read while a resize of its containers changes it.
    resources = bool(tracked.spec.get("resources") or tracked.saved.resize)
    return Step(tracked=tracked, call=LookAtPod(uid=tracked.uid, namesakes=namesakes, resources=resources))


def _without_look(tracked: TrackedPod) -> TrackedPod:
    """Return a pod that is new to the node as if it had been listed: there is nothing to list, because pleg, whose list
    is complete and fresh, has nothing of it, and podsync has no record. Its first starts are saved with its first
    record."""
    tracked = tracked.with_observation(None, 0.0)
    if tracked.saved.state is not PodState.SYNC:
        return tracked
    named = [spec["name"] for kind, spec in every_container(tracked.saved.pod) if kind is not ContainerKind.EPHEMERAL]
    starting = SavedContainer(starting=start_mark(0))
    return replace(tracked, saved=replace(tracked.saved, containers={str(name): starting for name in named}))


def _sync(tracked: TrackedPod, inputs: StepInputs) -> Step:
    if (step := _before_containers(tracked, inputs)) is not None:
        return step
    if not (step := restart_all(tracked, inputs)).is_open:
        return step
    actions = compute_pod_actions(step.tracked)
    of_pod = _kill_pod(step.tracked, actions) or _new_sandbox(step.tracked, actions, inputs)
    if of_pod is not None:
        return of_pod
    if not (step := after_failed_hook(step.tracked)).is_open:
        return step
    if not (step := stop_after_device_failure(step.tracked)).is_open:
        return step
    for kill in actions.kill:
        return kill_one(step.tracked, kill)
    if not (step := run_owed_hook(step.tracked)).is_open:
        return step
    resized = resize_pod(step.tracked, inputs)
    if resized.call is not None:
        return resized
    claims = describe_unprepared(resized.tracked)  # one may have to be prepared again while containers run
    step = start_containers(resized.tracked, replace(actions, start=()) if claims else actions, inputs)
    if claims and actions.start:
        step.waits_for = claims
    step.events = [*resized.events, *step.events]
    if resized.wake_at:
        step.wake_earlier(resized.wake_at)
    if step.call is None:
        dead = dead_instances(step.tracked, keep=inputs.dead_instances_kept) or dead_sandboxes(
            step.tracked, keep_newest=True
        )
        remove_when_due(step, dead, inputs)
    return step


def _before_containers(tracked: TrackedPod, inputs: StepInputs) -> Step | None:
    """Return the step for what a pod needs before its containers; None = it has all of it."""
    if inputs.victims_until > inputs.now:
        return Step(tracked=tracked, wake_at=inputs.victims_until, waits_for="the pods preempted for this one to stop")
    if inputs.name_taken:
        return Step(tracked=tracked, waits_for="another pod of the same name to finish")
    if not inputs.network_ready and not tracked.host_network:
        message = f"network is not ready: {inputs.network_message}"
        return Step(tracked=tracked, waits_for=message, events=[("Warning", "NetworkNotReady", message, "")])
    if not tracked.setup.prepared:
        return _without_cgroup(tracked)
    missing = unmounted_volumes(tracked)
    if missing:
        return Step(tracked=tracked, waits_for=f"volumes {', '.join(missing)}")
    if not tracked.alive and (claims := describe_unprepared(tracked)):
        return Step(tracked=tracked, waits_for=claims)
    if tracked.observed.interrupted:
        if (beside := go_on_beside(tracked)) is not None:
            return beside
        step = Step(tracked=tracked)
        remove_when_due(step, dead_instances(tracked, keep=inputs.dead_instances_kept), inputs)
        if step.call is None:
            step.waits_for = f"the runtime to remove containers: {tracked.retry.removal_error}"
        return step
    return None


def _without_cgroup(tracked: TrackedPod) -> Step:
    """Return the step that makes directories and cgroup. Where containers run without the cgroup, and so without its
    limits, the pod is stopped first; its restart policy then applies as after any end, in a new sandbox."""
    if tracked.setup.cgroup_missing:
        call = kill_everything(tracked, spec_grace(tracked))
        if call is not None and _runs(tracked):
            return Step(tracked=tracked, call=call, events=killing_events(tracked))
        # The call that replaces a sandbox stops it once more, and records the event.
        setup = replace(tracked.setup, cgroup_missing=False, stopped_sandboxes=frozenset())
        tracked = replace(tracked, setup=setup)
    return Step(tracked=tracked, call=PreparePod(uid=tracked.uid, runs=_runs(tracked)))


def _runs(tracked: TrackedPod) -> bool:
    """Return whether a regular container of the pod runs."""
    names = {str(spec["name"]) for spec in tracked.containers}
    return any(c.state is ContainerState.RUNNING and c.name in names for c in tracked.instances)


def _kill_pod(tracked: TrackedPod, actions: PodActions) -> Step | None:
    """Return the step that kills everything of a sandbox that is replaced, or of a pod that ends; None = nothing to
    kill."""
    if not actions.kill_pod:
        return None
    # The sandbox of a container that the runtime cannot stop is killed with it after some tries.
    with_grace = tracked.retry.failures_of(KillPod) < MAX_KILLS_WITH_GRACE
    call = kill_everything(tracked, (tracked.saved.grace_seconds or spec_grace(tracked)) if with_grace else 0)
    if call is None:
        return None
    if actions.create_sandbox:  # what ran continues in the new sandbox, with any exit code
        every = (*tracked.init_containers, *tracked.containers)
        runs_once = tracked.spec.get("restartPolicy") == "Never"
        names = {str(spec["name"]) for spec in every if not runs_once or goes_on(tracked, spec)}
        saved = tracked.saved
        for name, instance in {c.name: c.id for c in tracked.alive if c.name in names}.items():
            container = replace(saved.container(name), replacing=instance)
            if tracked.init_containers:
                container = replace(container, held_back=instance)  # only the first init container starts at once
            elif container.held_back == instance:  # the earlier kill failed
                container = replace(container, held_back="")
            saved = with_container(saved, name, container)
        tracked = replace(tracked, saved=saved)
    changed = ("Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.", "")
    events = [changed] if actions.sandbox_changed else []
    return Step(tracked=tracked, call=call, events=[*events, *killing_events(tracked)])


def _new_sandbox(tracked: TrackedPod, actions: PodActions, inputs: StepInputs) -> Step | None:
    """Return the step that makes a new sandbox, after the removal of dead init containers: the pod initializes again in
    it. The pod has all else that it needs then, and waits for its turn. None = no new sandbox is needed."""
    if not actions.create_sandbox:
        return None
    dead = dead_init_instances(tracked)
    if dead is not None:
        step = Step(tracked=tracked)
        remove_when_due(step, dead, inputs)
        return step
    if inputs.waits_for_turn():
        return Step(tracked=tracked, waits_for=WAITS_FOR_TURN)
    return Step(tracked=tracked, call=RunPodSandbox(uid=tracked.uid, attempt=actions.sandbox_attempt))


def unmounted_volumes(tracked: TrackedPod) -> tuple[str, ...]:
    """Return the desired volumes that are not mounted (yet)."""
    mounted = tracked.volumes.volumes if tracked.volumes else {}
    return tuple(
        name
        for name in mounted_volumes(tracked.saved)
        if name not in mounted or mounted[name].state is not VolumeState.MOUNTED
    )
