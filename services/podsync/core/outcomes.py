"""Changes the record of a pod after one of our own calls ended. `steps` decides what follows from it."""

from collections.abc import Mapping

from services.podsync.core.images.image_outcomes import (
    inspected,
    inspection_failed,
    pull_failed,
    pulled,
)
from services.podsync.core.pod.allocation import resize_event
from services.podsync.core.pod.events import DIRECTORIES_FAILED, SANDBOX_STATUS_FAILED, CallDone, CallFailed
from services.podsync.core.pod.instructions import (
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
from services.podsync.core.pod.observed import outdated
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.results import (
    ContainerCreated,
    ImageInspected,
    ImagePulled,
    PartListed,
    PodListed,
    PodPrepared,
    PodResized,
    Result,
)
from services.podsync.core.pod.retry import after_failure, after_look, start_later
from services.podsync.core.pod.saved import with_container, with_containers, without
from services.podsync.core.sync.actions import decide_sandbox
from services.podsync.core.sync.left_behind import ENDINGS
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


def succeeded(record: PodRecord, event: CallDone, now: float) -> PodRecord:
    """Return the record after its call succeeded, with no call under way."""
    retry = record.retry
    if isinstance(event.call, LookAtPod | InspectImage):
        retry = after_look(replace(retry, at=0.0), event.call) if retry.at or retry.failures else retry
    else:
        done = without_begun_hooks(replace(event.call, cause=""))
        retry = replace(retry, failures={}, last_done=done, at=0.0)
    record = _with_warnings(replace(record, retry=retry, call=None), event)
    result, at = event.result, event.completed_at
    match event.call:
        case KillPod(sandboxes=sandboxes):
            setup = replace(record.setup, stopped_sandboxes=record.setup.stopped_sandboxes.union(sandboxes))
            record = replace(record, setup=setup)
            record = _observed(record, result, at, stopped=sandboxes)
            # The runtime reported success and still shows a running container: the request is repeated after a delay.
            return _later(record, now + FIRST_RETRY_SECONDS) if record.alive else record
        case RunPodSandbox():
            record = _observed(record, result, at)
            # The sandbox is not as requested: the next one is made after a delay.
            return _later(record, now + RETRY_SECONDS) if decide_sandbox(record).create else record
        case PreparePod() if isinstance(result, PodPrepared):
            setup = replace(record.setup, prepared=not result.cgroup_missing, cgroup_missing=result.cgroup_missing)
            return _with_log_attempts(replace(record, setup=setup), result.log_attempts)
        case InspectImage() if isinstance(result, ImageInspected):
            return inspected(record, event.call, result)
        case PullImage() if isinstance(result, ImagePulled):
            return pulled(record, event.call, result)
        case RunPostStartHook(container=container):
            return with_start_over(record, container)
        case CreateContainer(container=container) if isinstance(result, ContainerCreated):
            record = _created(record, event.call, result, at)
            return record.with_event("Normal", "Created", "Container created", container)
        case StartContainer():
            return _started(record, event.call, result, at)
        case RemoveContainers() | RemoveSandboxes():
            retry = replace(record.retry, removal_error="", refusals=0, endings=0)
            return _observed(replace(record, retry=retry), result, at)
        case EndTasks(left=left, refusal=refusal):
            retry = replace(record.retry, removal_at=0.0, refusals=0, endings=record.retry.endings + 1)
            text = f"{left} could not be removed, and its task was ended by the runtime's task service: {refusal}"
            record = replace(record, retry=retry).with_event("Warning", "FailedSync", text, "")
            return _observed(record, result, at)
        case ResizePod():
            return _with_resources(_resized(record, event.call), result)
        case ReleasePod():
            return replace(record, setup=replace(record.setup, released=True))
        case RemovePodLogs():
            return replace(record, setup=replace(record.setup, logs_removed=True))
        case _:
            if isinstance(result, PodListed) and result.cgroup_missing:
                record = replace(record, setup=replace(record.setup, prepared=False))
            return _observed(_with_resources(record, result), result, at)


def _with_resources(record: PodRecord, result: Result | None) -> PodRecord:
    read = result.resources if isinstance(result, PodListed | PodResized) else None
    return record if read is None else replace(record, setup=replace(record.setup, resources=read))


def _later(record: PodRecord, at: float) -> PodRecord:
    return replace(record, retry=replace(record.retry, at=at))


def _started(record: PodRecord, call: StartContainer, result: Result | None, at: float) -> PodRecord:
    retry = replace(record.retry, starts={})
    record = replace(record, retry=retry)
    record = record.with_progress(replace(record.progress(call.container), reason=None), call.container)
    if record.saved.container(call.container).hook_owed != call.container_id:
        record = with_start_over(record, call.container)
    record = _observed(record, result, at)
    return record.with_event("Normal", "Started", "Container started", call.container)


def _with_log_attempts(record: PodRecord, log_attempts: Mapping[str, int]) -> PodRecord:
    """Count the attempts that the pod's log directories show, where the runtime has no newer ones."""
    newest = {}
    for container, attempt in log_attempts.items():
        lost = any(c.name == container and c.restart_count == attempt for c in record.observed.interrupted)
        if attempt or not lost:
            newest[container] = attempt - lost
    attempts = replace(record.attempts, containers={**newest, **record.attempts.containers})
    return replace(record, attempts=attempts)


def _observed(record: PodRecord, result: Result | None, at: float, stopped: tuple[str, ...] = ()) -> PodRecord:
    """Return the record with the pod as it was listed after the call, or as it was known with what the call has
    changed."""
    if isinstance(result, PodListed):
        return record.with_observation(result.pod, at)
    part = result if isinstance(result, PartListed) else PartListed()
    nothing = RuntimePod(uid=record.uid, name=record.name, namespace=record.namespace, observed_at=0.0)
    known = record.observed.runtime_pod or nothing
    apart = (*record.observed.interrupted, *record.observed.left_behind)
    containers = {c.id: c for c in (*known.containers, *apart, *part.containers)}
    sandboxes = {s.id: replace(s, state=SandboxState.NOTREADY) if s.id in stopped else s for s in known.sandboxes}
    if part.sandbox is not None:
        sandboxes[part.sandbox.id] = part.sandbox
    pod = replace(
        known,
        observed_at=at,
        sandboxes=tuple(sorted(sandboxes.values(), key=lambda s: (-s.attempt, -s.created_at, s.id))),
        containers=tuple(sorted(containers.values(), key=lambda c: (-c.created_at, -c.attempt, c.id))),
    )
    return record.with_observation(pod, at)


def _with_warnings(record: PodRecord, event: CallDone | CallFailed) -> PodRecord:
    """Return the record with the warnings of the call: those of a sandbox and of hooks each time, others when they
    change."""
    kind = type(event.call).__name__
    if not event.warnings and not event.container_warnings and not record.warned.get(kind):
        return record
    known = {warning for warnings in record.warned.values() for warning in warnings}
    for warning in event.warnings:
        if isinstance(event.call, RunPodSandbox) or warning not in known:
            record = record.with_event("Warning", *warning, "")
    record = replace(record, warned={**record.warned, kind: event.warnings})
    for reason, message, container in event.container_warnings:
        record = record.with_event("Warning", reason, message, container)
    return record


def _created(record: PodRecord, call: CreateContainer, made: ContainerCreated, at: float) -> PodRecord:
    """Add the new container without a list of the runtime: its start follows at once, and lists the pod."""
    record = record.with_progress(replace(record.progress(call.container), image=None), call.container)
    entry = record.container(call.container)
    if entry is None or container_hash(entry[1]) != call.spec_hash:
        return replace(record, observed=outdated(record.observed))  # the pod has no such container any more
    if any(c.id == made.container_id for c in record.instances):
        return record  # pleg has reported the container already
    created = Container(
        id=made.container_id,
        name=call.container,
        attempt=call.attempt,
        sandbox_id=call.sandbox_id,
        state=ContainerState.CREATED,
        created_at=int(record.newest_creation() + 1),
        image=str(entry[1].get("image", "")),
        image_id=call.image.id,
        spec_hash=call.spec_hash,
        restart_count=call.attempt,
        log_path=made.log_path,
    )
    seen = record.observed.runtime_pod
    if seen is not None:
        seen = replace(seen, observed_at=at, containers=(created, *seen.containers))
    return record.with_observation(seen, at)


def failed(record: PodRecord, event: CallFailed, now: float) -> PodRecord:
    """Return the record after its call failed, with no call under way: what to show, and when to try again. What the
    runtime did nevertheless is observed next."""
    call, record = event.call, replace(record, call=None)
    if isinstance(call, PullImage):
        # The image may have been imported meanwhile: inspect before the next pull.
        progress = replace(record.progress(call.container, call.volume), must_pull=False)
        record = record.with_progress(progress, call.container, call.volume)
    elif not isinstance(call, InspectImage):
        record = replace(record, observed=outdated(record.observed))
    if not event.begun:
        record = drop_unbegun_hooks(record, call)
    if event.interrupted:
        return record
    record = _with_warnings(record, event)
    if isinstance(call, RunPostStartHook):
        return _hook_failed(record, call, event)
    record = replace(record, retry=after_failure(record.retry, call, away=event.code == "Unavailable"))
    retry_at = now + _retry_after(record, event)
    match call:
        case CreateContainer():
            return _creation_failed(record, call, event, retry_at)
        case StartContainer():
            return _start_failed(record, call, event, retry_at)
        case InspectImage():
            return inspection_failed(record, call, event, retry_at)
        case PullImage():
            return pull_failed(record, call, event, now=now, retry_at=retry_at)
        case RemoveContainers() | RemoveSandboxes():
            refusals = record.retry.refusals + 1 if event.code == "FailedPrecondition" else 0
            if event.code in OUTCOME_UNKNOWN:  # the runtime did not answer the request
                refusals = record.retry.refusals
            retry = replace(record.retry, removal_at=retry_at, removal_error=event.text, refusals=refusals)
            return replace(record, retry=retry)
        case EndTasks():
            # A timeout counts, too: a process that the kernel cannot kill may never end.
            endings = record.retry.endings + (event.code not in ("Unavailable", "Canceled"))
            if event.code == "Unimplemented":  # the runtime is not containerd
                endings = max(ENDINGS, endings)
            # Too much of the pod is left behind already, or the pod ends.
            if endings == ENDINGS + 1 > record.retry.endings:
                text = f"{call.left} cannot be removed, and nothing ends its task: {event.text}"
                record = record.with_event("Warning", "FailedSync", text, "")
            return replace(record, retry=replace(record.retry, removal_at=retry_at, refusals=0, endings=endings))
        case ResizePod():
            return _resize_failed(record, event, retry_at)
    if isinstance(call, KillContainer | KillPod | RunPodSandbox):  # these failures also end a sync of the kubelet
        saved = with_containers(record.saved, lambda c: replace(c, held_back=c.replacing or c.held_back))
        record = replace(record, saved=saved)
    if (warning := _pod_warning(record, call, event)) is not None:
        record = record.with_event("Warning", *warning, "")
    return _later(record, retry_at)


def _creation_failed(record: PodRecord, call: CreateContainer, event: CallFailed, retry_at: float) -> PodRecord:
    record = record.with_progress(replace(record.progress(call.container), retry_at=retry_at), call.container)
    if is_blocked_by_earlier_call(event) and not _is_blocked_for_long(record, call):
        return record
    record = record.with_progress(replace(record.progress(call.container), image=None), call.container)
    for volume, _ in call.image_volumes:
        record = record.with_progress(replace(record.progress("", volume), image=None), "", volume)
    return _with_reason(record, call.container, "CreateContainerError", event)


def _start_failed(record: PodRecord, call: StartContainer, event: CallFailed, retry_at: float) -> PodRecord:
    record = replace(record, retry=start_later(record.retry, call.container_id, retry_at))
    blocked = is_blocked_by_earlier_call(event)
    if event.code not in OUTCOME_UNKNOWN and not blocked:
        # The runtime has reported that the start failed.
        container = replace(record.saved.container(call.container), starting="")
        record = replace(record, saved=with_container(record.saved, call.container, container))
    if blocked and not _is_blocked_for_long(record, call):
        return record
    return _with_reason(record, call.container, "RunContainerError", event)


def _with_reason(record: PodRecord, container: str, default: str, event: CallFailed) -> PodRecord:
    """Record that the container waits, with the reason of the event where it has one."""
    text = event.description if not event.reason else event.text
    progress = replace(record.progress(container), reason=(event.reason or default, text))
    record = record.with_progress(progress, container)
    return record.with_event("Warning", "Failed", f"Error: {text}", container)


def _resized(record: PodRecord, call: ResizePod) -> PodRecord:
    """Record that the cgroup and these containers have what is allocated, which does not change during the call."""
    saved, resize = record.saved, record.saved.resize
    actuated = without(saved.actuated, *(update.container for update in call.containers))
    if resize is not None:
        resize = replace(resize, cgroup_written=True, error="")
    return replace(record, saved=replace(saved, actuated=actuated, resize=resize))


def _resize_failed(record: PodRecord, event: CallFailed, retry_at: float) -> PodRecord:
    record = replace(record, retry=replace(record.retry, resize_at=retry_at))
    resize = record.saved.resize
    if resize is None or resize.error == event.text:
        return record
    record = replace(record, saved=replace(record.saved, resize=replace(resize, error=event.text)))
    return record.with_event(*resize_event(record.saved.pod, "error", resize.generation, event.text))


def _hook_failed(record: PodRecord, call: RunPostStartHook, event: CallFailed) -> PodRecord:
    """Record that the hook failed, so that the container is stopped. The record is saved first: a restart of podsync
    does not run the hook again."""
    record = with_start_over(record, call.container)
    container = replace(record.saved.container(call.container), hook_failed=call.container_id)
    record = replace(record, saved=with_container(record.saved, call.container, container))
    progress = replace(record.progress(call.container), reason=("PostStartHookError", event.text))
    record = record.with_progress(progress, call.container)
    return record.with_event("Warning", "FailedPostStartHook", "PostStartHook failed", call.container)


def _pod_warning(record: PodRecord, call: Call, event: CallFailed) -> tuple[str, str] | None:
    """Return reason and message of the pod's Warning event, None = there is none."""
    match call:
        case RunPodSandbox() if event.reason == SANDBOX_STATUS_FAILED:
            return event.reason, f"Unable to get pod sandbox status: {event.text}"
        case RunPodSandbox() if is_blocked_by_earlier_call(event) and not _is_blocked_for_long(record, call):
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


def _is_blocked_for_long(record: PodRecord, call: Call) -> bool:
    """Return whether the call was blocked so often that it counts as an ordinary failure."""
    return record.retry.failures_of(type(call)) > MAX_BLOCKED_RETRIES


def _retry_after(record: PodRecord, event: CallFailed) -> float:
    """Return the seconds until a failed call is tried again, with jitter from the UID, so that pods do not retry
    together."""
    if is_blocked_by_earlier_call(event) and not _is_blocked_for_long(record, event.call):
        return BLOCKED_RETRY_SECONDS
    kind = type(event.call)
    if event.code == "Unavailable":
        return UNAVAILABLE_RETRIES.delay(record.retry.failures_of(kind, away=True))
    failures = record.retry.failures_of(kind)
    return RETRIES.delay(failures, jitter(record, failures) / 2)


def jitter(record: PodRecord, failures: int = 0) -> float:
    """Return deterministic jitter in [0, 1), from the pod's UID and a number of failures."""
    return (sum(record.uid.encode()) + failures * 7) % 100 / 100
