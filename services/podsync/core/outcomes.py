"""Changes a tracked pod after one of our own calls ended. `steps` decides what follows from it."""

from collections.abc import Mapping

from services.podsync.core.images.image_outcomes import (
    inspected,
    inspection_failed,
    pull_failed,
    pulled,
)
from services.podsync.core.pod.allocation import resize_event
from services.podsync.core.pod.call_results import (
    ContainerCreated,
    ImageInspected,
    ImagePulled,
    PartListed,
    PodListed,
    PodPrepared,
    PodResized,
    Result,
)
from services.podsync.core.pod.events import DIRECTORIES_FAILED, SANDBOX_STATUS_FAILED, CallDone, CallFailed
from services.podsync.core.pod.instructions import (
    AllocatePodDevices,
    AskPreferredDevices,
    Call,
    CreateContainer,
    EndTasks,
    InspectImage,
    KillContainer,
    KillPod,
    LookAtPod,
    PreparePod,
    PullImage,
    ReleasePod,
    RemoveContainers,
    RemovePodLogs,
    RemoveSandboxes,
    ResizePod,
    RunPodSandbox,
    RunPostStartHook,
    StartContainer,
)
from services.podsync.core.pod.observed_in_runtime import outdated
from services.podsync.core.pod.progress import InstanceFacts
from services.podsync.core.pod.retry import after_failure, after_look, start_later
from services.podsync.core.pod.saved import with_container, with_containers, without
from services.podsync.core.pod.step import Step
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.kills_and_starts import decide_sandbox
from services.podsync.core.sync.left_behind import after_ending, after_failed_ending
from services.podsync.core.sync.post_start import with_start_over
from services.podsync.core.sync.pre_stop import drop_unbegun_hooks, without_begun_hooks
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, SandboxState
from shared.podspec.hashing import container_hash
from shared.time.backoff import Backoff

FIRST_RETRY_SECONDS = 1.0
RETRY_SECONDS = 10.0  # the kubelet's back-off for a failed sync, before jitter
RETRIES = Backoff(initial=FIRST_RETRY_SECONDS, factor=10.0, cap=RETRY_SECONDS)
BLOCKED_TEXTS = ("is reserved for", "already in starting state", "is in CONTAINER_EXITED state")
BLOCKED_RETRY_SECONDS = 0.25
MAX_BLOCKED_RETRIES = 20
OUTCOME_UNKNOWN = ("Unavailable", "Canceled", "DeadlineExceeded")  # the call may have been carried out or not
# While the runtime is away. The first retries are soon, so that the restart of a runtime within 5 s is noticed. The cap
# is for a missed event: the return of a runtime that was noticed to be away is an event.
UNAVAILABLE_RETRIES = Backoff(initial=0.25, cap=5.0)
NANOSECONDS = 1e9


def delay_repeated_call(step: Step, now: float) -> None:
    """Repeat a call that has just succeeded only after a delay: the runtime does not show its effect yet."""
    retry = step.tracked.retry
    if step.call is not None and step.call == retry.last_done:
        retry = replace(retry, last_done=None, at=now + FIRST_RETRY_SECONDS)
        step.tracked, step.call = replace(step.tracked, retry=retry), None
        step.wake_earlier(retry.at)


def succeeded(tracked: TrackedPod, event: CallDone, now: float) -> TrackedPod:
    """Return the pod after its call succeeded, with no call under way."""
    retry = tracked.retry
    if isinstance(event.call, LookAtPod | InspectImage):
        retry = after_look(replace(retry, at=0.0), event.call) if retry.at or retry.failures else retry
    elif isinstance(event.call, AskPreferredDevices | AllocatePodDevices):
        # Plugins may be asked the same again at once, where other devices have changed the choice meanwhile.
        retry = replace(retry, at=0.0, failures={})
    else:
        done = without_begun_hooks(replace(event.call, cause=""))
        retry = replace(retry, failures={}, last_done=done, at=0.0)
    tracked = _with_warnings(replace(tracked, retry=retry, call=None), event)
    result, at = event.result, event.completed_at
    match event.call:
        case KillPod(sandboxes=sandboxes):
            setup = replace(tracked.setup, stopped_sandboxes=tracked.setup.stopped_sandboxes.union(sandboxes))
            tracked = replace(tracked, setup=setup)
            tracked = _observed(tracked, result, at, stopped=sandboxes)
            # The runtime reported success and still shows a running container: the request is repeated after a delay.
            return _later(tracked, now + FIRST_RETRY_SECONDS) if tracked.alive else tracked
        case RunPodSandbox():
            tracked = _observed(tracked, result, at)
            # The sandbox is not as requested: the next one is made after a delay.
            return _later(tracked, now + RETRY_SECONDS) if decide_sandbox(tracked).create else tracked
        case PreparePod() if isinstance(result, PodPrepared):
            setup = replace(tracked.setup, prepared=not result.cgroup_missing, cgroup_missing=result.cgroup_missing)
            return _with_log_attempts(replace(tracked, setup=setup), result.log_attempts)
        case InspectImage() if isinstance(result, ImageInspected):
            return inspected(tracked, event.call, result)
        case PullImage() if isinstance(result, ImagePulled):
            return pulled(tracked, event.call, result)
        case RunPostStartHook(container=container):
            return with_start_over(tracked, container)
        case CreateContainer(container=container) if isinstance(result, ContainerCreated):
            tracked = _created(tracked, event.call, result, at)
            return tracked.with_event("Normal", "Created", "Container created", container)
        case StartContainer():
            return _started(tracked, event.call, result, at)
        case RemoveContainers() | RemoveSandboxes():
            retry = replace(tracked.retry, removal_error="", refusals=0, endings=0)
            return _observed(replace(tracked, retry=retry), result, at)
        case EndTasks() as call:
            return _observed(after_ending(tracked, call), result, at)
        case ResizePod():
            return _with_resources(_resized(tracked, event.call), result)
        case ReleasePod():
            return replace(tracked, setup=replace(tracked.setup, released=True))
        case RemovePodLogs():
            return replace(tracked, setup=replace(tracked.setup, logs_removed=True))
        case _:
            if isinstance(result, PodListed) and result.cgroup_missing:
                tracked = replace(tracked, setup=replace(tracked.setup, prepared=False))
            return _observed(_with_resources(tracked, result), result, at)


def _with_resources(tracked: TrackedPod, result: Result | None) -> TrackedPod:
    read = result.resources if isinstance(result, PodListed | PodResized) else None
    return tracked if read is None else replace(tracked, setup=replace(tracked.setup, resources=read))


def _later(tracked: TrackedPod, at: float) -> TrackedPod:
    return replace(tracked, retry=replace(tracked.retry, at=at))


def _started(tracked: TrackedPod, call: StartContainer, result: Result | None, at: float) -> TrackedPod:
    retry = replace(tracked.retry, starts={})
    tracked = replace(tracked, retry=retry)
    tracked = tracked.with_progress(replace(tracked.progress(call.container), reason=None), call.container)
    if tracked.saved.container(call.container).hook_owed != call.container_id:
        tracked = with_start_over(tracked, call.container)
    tracked = _observed(tracked, result, at)
    return tracked.with_event("Normal", "Started", "Container started", call.container)


def _with_log_attempts(tracked: TrackedPod, log_attempts: Mapping[str, int]) -> TrackedPod:
    """Count the attempts that the pod's log directories show, where the runtime has no newer ones."""
    newest = {}
    for container, attempt in log_attempts.items():
        lost = any(c.name == container and c.restart_count == attempt for c in tracked.observed.interrupted)
        if attempt or not lost:
            newest[container] = attempt - lost
    attempts = replace(tracked.attempts, containers={**newest, **tracked.attempts.containers})
    return replace(tracked, attempts=attempts)


def _observed(tracked: TrackedPod, result: Result | None, at: float, stopped: tuple[str, ...] = ()) -> TrackedPod:
    """Return the pod as it was listed after the call, or as it was known with what the call has
    changed."""
    if isinstance(result, PodListed):
        return tracked.with_observation(result.pod, at)
    part = result if isinstance(result, PartListed) else PartListed()
    nothing = RuntimePod(uid=tracked.uid, name=tracked.name, namespace=tracked.namespace, observed_at=0.0)
    known = tracked.observed.runtime_pod or nothing
    apart = (*tracked.observed.interrupted, *tracked.observed.left_behind)
    containers = {c.id: c for c in (*known.containers, *apart, *part.containers)}
    sandboxes = {s.id: replace(s, state=SandboxState.NOTREADY) if s.id in stopped else s for s in known.sandboxes}
    if part.sandbox is not None:
        sandboxes[part.sandbox.id] = part.sandbox
    for removed in part.removed:
        containers.pop(removed, None)
        sandboxes.pop(removed, None)
    pod = replace(
        known,
        observed_at=at,
        sandboxes=tuple(sorted(sandboxes.values(), key=lambda s: (-s.attempt, -s.created_at, s.id))),
        containers=tuple(sorted(containers.values(), key=lambda c: (-c.created_at, -c.attempt, c.id))),
    )
    return tracked.with_observation(pod, at)


def _with_warnings(tracked: TrackedPod, event: CallDone | CallFailed) -> TrackedPod:
    """Return the pod with the warnings of the call: those of a sandbox and of hooks each time, others when they
    change."""
    kind = type(event.call).__name__
    if not event.warnings and not event.container_warnings and not tracked.warned.get(kind):
        return tracked
    known = {warning for warnings in tracked.warned.values() for warning in warnings}
    for warning in event.warnings:
        if isinstance(event.call, RunPodSandbox) or warning not in known:
            tracked = tracked.with_event("Warning", *warning, "")
    tracked = replace(tracked, warned={**tracked.warned, kind: event.warnings})
    for reason, message, container in event.container_warnings:
        tracked = tracked.with_event("Warning", reason, message, container)
    return tracked


def _created(tracked: TrackedPod, call: CreateContainer, made: ContainerCreated, at: float) -> TrackedPod:
    """Add the new container without a list of the runtime: its start follows at once, and lists the pod."""
    tracked = tracked.with_progress(replace(tracked.progress(call.container), image=None), call.container)
    entry = tracked.container(call.container)
    if entry is None or container_hash(entry[1]) != call.spec_hash:
        return replace(tracked, observed=outdated(tracked.observed))  # the pod has no such container any more
    if any(c.id == made.container_id for c in tracked.instances):
        return tracked  # pleg has reported the container already
    if made.cpus:
        facts = {**tracked.instance_facts, made.container_id: InstanceFacts(cpus=made.cpus)}
        tracked = replace(tracked, instance_facts=facts)
    created = Container(
        id=made.container_id,
        name=call.container,
        attempt=call.attempt,
        sandbox_id=call.sandbox_id,
        state=ContainerState.CREATED,
        created_at=int(tracked.newest_creation() + 1),
        image=str(entry[1].get("image", "")),
        image_id=call.image.id,
        spec_hash=call.spec_hash,
        restart_count=call.attempt,
        log_path=made.log_path,
    )
    seen = tracked.observed.runtime_pod
    if seen is not None:
        seen = replace(seen, observed_at=at, containers=(created, *seen.containers))
    return tracked.with_observation(seen, at)


def failed(tracked: TrackedPod, event: CallFailed, now: float) -> TrackedPod:
    """Return the pod after its call failed, with no call under way: what to show, and when to try again. What the
    runtime did nevertheless is observed next."""
    call, tracked = event.call, replace(tracked, call=None)
    if isinstance(call, PullImage):
        # The image may have been imported meanwhile: inspect before the next pull.
        progress = replace(tracked.progress(call.container, call.volume), must_pull=False)
        tracked = tracked.with_progress(progress, call.container, call.volume)
    elif not isinstance(call, InspectImage):
        tracked = replace(tracked, observed=outdated(tracked.observed))
    if not event.begun:
        tracked = drop_unbegun_hooks(tracked, call)
    if event.interrupted:
        return tracked
    tracked = _with_warnings(tracked, event)
    if isinstance(call, RunPostStartHook):
        return _hook_failed(tracked, call, event)
    tracked = replace(tracked, retry=after_failure(tracked.retry, call, away=event.code == "Unavailable"))
    retry_at = now + _retry_after(tracked, event)
    match call:
        case CreateContainer():
            return _creation_failed(tracked, call, event, retry_at)
        case StartContainer():
            return _start_failed(tracked, call, event, retry_at)
        case InspectImage():
            return inspection_failed(tracked, call, event, retry_at)
        case PullImage():
            return pull_failed(tracked, call, event, now=now, retry_at=retry_at)
        case RemoveContainers() | RemoveSandboxes():
            refusals = tracked.retry.refusals + 1 if event.code == "FailedPrecondition" else 0
            if event.code in OUTCOME_UNKNOWN:  # the runtime did not answer the request
                refusals = tracked.retry.refusals
            retry = replace(tracked.retry, removal_at=retry_at, removal_error=event.text, refusals=refusals)
            return replace(tracked, retry=retry)
        case EndTasks():
            return after_failed_ending(tracked, call, event.code, event.text, retry_at)
        case ResizePod():
            return _resize_failed(tracked, event, retry_at)
    if isinstance(call, KillContainer | KillPod | RunPodSandbox):  # these failures also end a sync of the kubelet
        saved = with_containers(tracked.saved, lambda c: replace(c, held_back=c.replacing or c.held_back))
        tracked = replace(tracked, saved=saved)
    if (warning := _pod_warning(tracked, call, event)) is not None:
        tracked = tracked.with_event("Warning", *warning, "")
    return _later(tracked, retry_at)


def _creation_failed(tracked: TrackedPod, call: CreateContainer, event: CallFailed, retry_at: float) -> TrackedPod:
    tracked = tracked.with_progress(replace(tracked.progress(call.container), retry_at=retry_at), call.container)
    if is_blocked_by_earlier_call(event) and not _is_blocked_for_long(tracked, call):
        return tracked
    tracked = tracked.with_progress(replace(tracked.progress(call.container), image=None), call.container)
    for volume, _ in call.image_volumes:
        tracked = tracked.with_progress(replace(tracked.progress("", volume), image=None), "", volume)
    return _with_reason(tracked, call.container, "CreateContainerError", event)


def _start_failed(tracked: TrackedPod, call: StartContainer, event: CallFailed, retry_at: float) -> TrackedPod:
    tracked = replace(tracked, retry=start_later(tracked.retry, call.container_id, retry_at))
    blocked = is_blocked_by_earlier_call(event)
    if event.code not in OUTCOME_UNKNOWN and not blocked:
        # The runtime has reported that the start failed.
        container = replace(tracked.saved.container(call.container), starting="")
        tracked = replace(tracked, saved=with_container(tracked.saved, call.container, container))
    if blocked and not _is_blocked_for_long(tracked, call):
        return tracked
    return _with_reason(tracked, call.container, "RunContainerError", event)


def _with_reason(tracked: TrackedPod, container: str, default: str, event: CallFailed) -> TrackedPod:
    """Record that the container waits, with the reason of the event where it has one."""
    text = event.description if not event.reason else event.text
    progress = replace(tracked.progress(container), reason=(event.reason or default, text))
    tracked = tracked.with_progress(progress, container)
    return tracked.with_event("Warning", "Failed", f"Error: {text}", container)


def _resized(tracked: TrackedPod, call: ResizePod) -> TrackedPod:
    """Record that the cgroup and these containers have what is allocated, which does not change during the call."""
    saved, resize = tracked.saved, tracked.saved.resize
    actuated = without(saved.actuated, *(update.container for update in call.containers))
    if resize is not None:
        resize = replace(resize, cgroup_written=True, error="")
    return replace(tracked, saved=replace(saved, actuated=actuated, resize=resize))


def _resize_failed(tracked: TrackedPod, event: CallFailed, retry_at: float) -> TrackedPod:
    tracked = replace(tracked, retry=replace(tracked.retry, resize_at=retry_at))
    resize = tracked.saved.resize
    if resize is None or resize.error == event.text:
        return tracked
    tracked = replace(tracked, saved=replace(tracked.saved, resize=replace(resize, error=event.text)))
    return tracked.with_event(*resize_event(tracked.saved.pod, "error", resize.generation, event.text))


def _hook_failed(tracked: TrackedPod, call: RunPostStartHook, event: CallFailed) -> TrackedPod:
    """Record that the hook failed, so that the container is stopped. That is saved first: a restart of podsync
    does not run the hook again."""
    tracked = with_start_over(tracked, call.container)
    container = replace(tracked.saved.container(call.container), hook_failed=call.container_id)
    tracked = replace(tracked, saved=with_container(tracked.saved, call.container, container))
    progress = replace(tracked.progress(call.container), reason=("PostStartHookError", event.text))
    tracked = tracked.with_progress(progress, call.container)
    return tracked.with_event("Warning", "FailedPostStartHook", "PostStartHook failed", call.container)


def _pod_warning(tracked: TrackedPod, call: Call, event: CallFailed) -> tuple[str, str] | None:
    """Return reason and message of the pod's Warning event, None = there is none."""
    match call:
        case RunPodSandbox() if event.reason == SANDBOX_STATUS_FAILED:
            return event.reason, f"Unable to get pod sandbox status: {event.text}"
        case RunPodSandbox() if is_blocked_by_earlier_call(event) and not _is_blocked_for_long(tracked, call):
            return None
        case RunPodSandbox():
            return "FailedCreatePodSandBox", f"Failed to create pod sandbox: {event.text}"
        case PreparePod() if event.reason == DIRECTORIES_FAILED:
            return event.reason, f"error making pod data directories: {event.text}"
        case PreparePod() if event.code != "Unavailable":
            return "FailedCreatePodContainer", f"unable to ensure pod container exists: {event.text}"
        case KillPod() | KillContainer():
            return "FailedKillPod", f"error killing pod: {event.text}"
        case LookAtPod() if event.code != "Unavailable":  # an absent runtime is one trouble of the node
            return "FailedSync", f"error determining status: {event.text}"
        case _:
            return None


def is_blocked_by_earlier_call(event: CallFailed) -> bool:
    """Return whether the runtime still carries out or undoes a call of an earlier process: the attempt's name is taken,
    its start under way, or its task left behind by a runtime that was killed. The failed call had no effect, and the
    runtime sends no event when it becomes possible."""
    left_behind = isinstance(event.call, StartContainer) and event.code == "AlreadyExists"
    return left_behind or any(text in event.description for text in BLOCKED_TEXTS)


def _is_blocked_for_long(tracked: TrackedPod, call: Call) -> bool:
    """Return whether the call was blocked so often that it counts as an ordinary failure."""
    return tracked.retry.failures_of(type(call)) > MAX_BLOCKED_RETRIES


def _retry_after(tracked: TrackedPod, event: CallFailed) -> float:
    """Return the seconds until a failed call is tried again, with jitter from the UID, so that pods do not retry
    together."""
    if is_blocked_by_earlier_call(event) and not _is_blocked_for_long(tracked, event.call):
        return BLOCKED_RETRY_SECONDS
    kind = type(event.call)
    if event.code == "Unavailable":
        return UNAVAILABLE_RETRIES.delay(tracked.retry.failures_of(kind, away=True))
    failures = tracked.retry.failures_of(kind)
    return RETRIES.delay(failures, jitter(tracked, failures) / 2)


def jitter(tracked: TrackedPod, failures: int = 0) -> float:
    """Return deterministic jitter in [0, 1), from the pod's UID and a number of failures."""
    return (sum(tracked.uid.encode()) + failures * 7) % 100 / 100
