"""What is known of a pod after one of our own calls came back.

Changes the record only; what follows from it is decided by `steps`.
"""

from collections.abc import Mapping
from dataclasses import replace

from services.podsync.core.images.image_outcomes import (
    inspection_failed,
    pull_failed,
    take_in_inspection,
    take_in_pull,
)
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import (
    Call,
    CreateContainer,
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
    RunPodSandbox,
    RunPostStartHook,
    StartContainer,
)
from services.podsync.core.pod.observed import outdated
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.retry import container_later, start_later, volume_key
from services.podsync.core.pod.saved import without
from services.podsync.core.sync.actions import decide_sandbox
from services.podsync.core.sync.post_start import end_start
from services.podsync.core.sync.pre_stop import drop_unbegun_hooks, without_begun_hooks
from shared.backoff import Backoff
from shared.model.runtime import Container, ContainerState, RuntimePod, SandboxState
from shared.podspec.hashing import container_hash

FIRST_RETRY_SECONDS = 1.0
RETRY_SECONDS = 10.0  # the kubelet's back-off for a failed sync, before jitter
RETRIES = Backoff(initial=FIRST_RETRY_SECONDS, factor=10.0, cap=RETRY_SECONDS)
IN_THE_WAY = ("is reserved for", "already in starting state", "is in CONTAINER_EXITED state")
IN_THE_WAY_RETRY_SECONDS = 0.25
IN_THE_WAY_RETRIES = 20
UNHEARD = ("Unavailable", "Canceled", "DeadlineExceeded")  # the call may have been carried out or not
# While the runtime is away. Soon at first, or a runtime that restarts within 5 s is never noticed; the cap is a safety
# net, as the return of a runtime that was noticed to be away is an event.
UNAVAILABLE_RETRIES = Backoff(initial=0.25, cap=5.0)
NANOSECONDS = 1e9


def take_in_success(record: PodRecord, event: CallDone, now: float) -> None:
    """The call did what it says."""
    if not isinstance(event.call, LookAtPod | InspectImage):
        done = without_begun_hooks(replace(event.call, cause=""))
        record.retry = replace(record.retry, failures=0, last_done=done)
    if record.retry.at:
        record.retry = replace(record.retry, at=0.0)
    _note_warnings(record, event)
    match event.call:
        case KillPod(sandboxes=sandboxes):
            record.stopped_sandboxes.update(sandboxes)
            record.observe(_seen(record, event, stopped=sandboxes), event.completed_at)
            if record.alive:  # the runtime said stopped and shows it running: do not ask again at once
                record.retry = replace(record.retry, at=now + FIRST_RETRY_SECONDS)
        case RunPodSandbox():
            record.observe(_seen(record, event), event.completed_at)
            if decide_sandbox(record).create:  # it is not what was asked for: do not make sandboxes in a circle
                record.retry = replace(record.retry, at=now + RETRY_SECONDS)
        case PreparePod():
            record.prepared, record.cgroup_missing = not event.cgroup_missing, event.cgroup_missing
            _take_in_logs(record, event.log_attempts)
        case InspectImage():
            take_in_inspection(record, event.call, event)
        case PullImage():
            take_in_pull(record, event.call, event)
        case RunPostStartHook(container=container):
            end_start(record, container)
        case CreateContainer(container=container):
            _take_in_creation(record, event.call, event)
            record.note("Normal", "Created", "Container created", container)
        case StartContainer(container=container):
            record.reasons.pop(container, None)
            record.retry = replace(record.retry, starts={})
            if record.saved.hooks_owed.get(container) != event.call.container_id:
                end_start(record, container)
            record.observe(_seen(record, event), event.completed_at)
            record.note("Normal", "Started", "Container started", container)
        case ReleasePod():
            record.released = True
        case RemovePodLogs():
            record.logs_removed = True
        case _:
            record.observe(event.observation, event.completed_at)
            record.prepared = record.prepared and not event.cgroup_missing


def _take_in_logs(record: PodRecord, log_attempts: Mapping[str, int]) -> None:
    """Count the attempts that the pod's log directories show, where the runtime has no newer ones."""
    found = {}
    for container, attempt in log_attempts.items():
        lost = any(c.name == container and c.restart_count == attempt for c in record.observed.interrupted)
        if attempt or not lost:
            found[container] = attempt - lost
    record.attempts = replace(record.attempts, containers={**found, **record.attempts.containers})


def _seen(record: PodRecord, event: CallDone, stopped: tuple[str, ...] = ()) -> RuntimePod | None:
    """The pod after the call: as it was looked at, or as we knew it with what the call has changed put in its place."""
    if event.observation is not None:
        return event.observation
    nothing = RuntimePod(uid=record.uid, name=record.name, namespace=record.namespace, observed_at=0.0)
    known = record.observed.runtime_pod or nothing
    containers = {c.id: c for c in (*known.containers, *event.containers)}
    sandboxes = {s.id: replace(s, state=SandboxState.NOTREADY) if s.id in stopped else s for s in known.sandboxes}
    if event.sandbox is not None:
        sandboxes[event.sandbox.id] = event.sandbox
    return replace(
        known,
        observed_at=event.completed_at,
        sandboxes=tuple(sorted(sandboxes.values(), key=lambda s: (-s.attempt, -s.created_at, s.id))),
        containers=tuple(sorted(containers.values(), key=lambda c: (-c.created_at, -c.attempt, c.id))),
    )


def _note_warnings(record: PodRecord, event: CallDone | CallFailed) -> None:
    """Those of a sandbox and of hooks belong to what was just done; the others are told when they change."""
    kind = type(event.call).__name__
    known = {warning for warnings in record.warned.values() for warning in warnings}
    for warning in event.warnings:
        if isinstance(event.call, RunPodSandbox) or warning not in known:
            record.note("Warning", *warning, "")
    record.warned[kind] = event.warnings
    for reason, message, container in event.container_warnings:
        record.note("Warning", reason, message, container)


def _take_in_creation(record: PodRecord, call: CreateContainer, event: CallDone) -> None:
    """Know of the new container without asking the runtime: its start follows at once, and that looks."""
    record.images.pop(call.container, None)
    found = record.container(call.container)
    spec = found[1] if found is not None else None
    if spec is None or any(c.id == event.container_id for c in record.instances):
        # Else pleg has seen it already, or the container is no part of the pod any more.
        if spec is None:
            record.observed = outdated(record.observed)
        return
    created = Container(
        id=event.container_id,
        name=call.container,
        attempt=call.attempt,
        sandbox_id=call.sandbox_id,
        state=ContainerState.CREATED,
        created_at=int(record.newest_creation() + 1),
        image=str(spec.get("image", "")),
        image_id=call.image.id,
        spec_hash=container_hash(spec),
        restart_count=call.attempt,
        log_path=event.log_path,
    )
    seen = record.observed.runtime_pod
    if seen is not None:
        seen = RuntimePod(
            uid=seen.uid,
            name=seen.name,
            namespace=seen.namespace,
            observed_at=event.completed_at,
            sandboxes=seen.sandboxes,
            containers=(created, *seen.containers),
        )
    record.observe(seen, event.completed_at)


def take_in_failure(record: PodRecord, event: CallFailed, now: float) -> None:
    """The call failed: what to show, and when to try again. What the runtime did all the same is looked at."""
    call = event.call
    if isinstance(call, PullImage):
        key = call.container or volume_key(call.volume)
        record.pulls.discard(key)  # it may have been imported meanwhile: look before the next pull
    elif not isinstance(call, InspectImage):
        record.observed = outdated(record.observed)
    if not event.begun:
        drop_unbegun_hooks(record, call)
    if event.interrupted:
        return
    _note_warnings(record, event)
    if isinstance(call, RunPostStartHook):
        _take_in_failed_hook(record, call, event)
        return
    record.retry = replace(record.retry, failures=record.retry.failures + 1)
    match call:
        case CreateContainer(container=name) | StartContainer(container=name):
            retry_at = now + _retry_after(record, event)
            if isinstance(call, StartContainer):
                record.retry = start_later(record.retry, call.container_id, retry_at)
                if event.code not in UNHEARD and not is_in_the_way(event):
                    # The runtime has reported how the start went.
                    record.saved = replace(record.saved, starting=without(record.saved.starting, name))
            else:
                record.retry = container_later(record.retry, name, retry_at)
            if is_in_the_way(event) and not _in_the_way_for_long(record):
                return
            default = "CreateContainerError" if isinstance(call, CreateContainer) else "RunContainerError"
            text = event.description if not event.reason else event.text
            record.reasons[name] = (event.reason or default, text)
            record.note("Warning", "Failed", f"Error: {text}", name)
            if isinstance(call, CreateContainer):
                for key in (name, *(volume_key(volume) for volume, _ in call.image_volumes)):
                    record.images.pop(key, None)
        case InspectImage():
            inspection_failed(record, call, event, now + _retry_after(record, event))
        case PullImage():
            pull_failed(record, call, event, now=now, retry_at=now + _retry_after(record, event))
        case RemoveContainers() | RemoveSandboxes():
            record.retry = replace(record.retry, removal_at=now + _retry_after(record, event))
        case _:
            if isinstance(call, KillContainer | KillPod | RunPodSandbox):  # it ends a sync of the kubelet's as well
                held_back = {**record.saved.held_back, **record.saved.replacing}
                record.saved = replace(record.saved, held_back=held_back)
            _note_pod_failure(record, call, event)
            record.retry = replace(record.retry, at=now + _retry_after(record, event))


def _take_in_failed_hook(record: PodRecord, call: RunPostStartHook, event: CallFailed) -> None:
    """The container goes: that is noted and saved, so that no death of ours makes the hook run again instead."""
    end_start(record, call.container)
    hooks_failed = {**record.saved.hooks_failed, call.container: call.container_id}
    record.saved = replace(record.saved, hooks_failed=hooks_failed)
    record.reasons[call.container] = ("PostStartHookError", event.text)
    record.note("Warning", "FailedPostStartHook", "PostStartHook failed", call.container)


def _note_pod_failure(record: PodRecord, call: Call, event: CallFailed) -> None:
    match call:
        case RunPodSandbox() if is_in_the_way(event) and not _in_the_way_for_long(record):
            return
        case RunPodSandbox():
            record.note("Warning", "FailedCreatePodSandBox", f"Failed to create pod sandbox: {event.text}", "")
        case PreparePod() if event.code != "Unavailable":
            record.note(
                "Warning", "FailedCreatePodContainer", f"unable to ensure pod container exists: {event.text}", ""
            )
        case KillPod() | KillContainer():
            record.note("Warning", "FailedKillPod", f"error killing pod: {event.text}", "")
        case LookAtPod() if event.code != "Unavailable":  # an absent runtime is one trouble, not one of every pod
            record.note("Warning", "FailedSync", f"error determining status: {event.text}", "")
        case _:
            pass


def is_in_the_way(event: CallFailed) -> bool:
    """A call of an earlier life is still being done or undone: the attempt's name is taken, its start under way, or its
    task left behind by a runtime that was killed. The call had no effect; nobody tells when the way is free."""
    left_behind = isinstance(event.call, StartContainer) and event.code == "AlreadyExists"
    return left_behind or any(text in event.description for text in IN_THE_WAY)


def _in_the_way_for_long(record: PodRecord) -> bool:
    """The runtime neither shows what is in the way nor lets go of it: from here on it is an ordinary failure."""
    return record.retry.failures > IN_THE_WAY_RETRIES


def _retry_after(record: PodRecord, event: CallFailed) -> float:
    """Seconds until a failed call is tried again; jitter comes from the UID, so that pods do not retry in step."""
    if is_in_the_way(event) and not _in_the_way_for_long(record):
        return IN_THE_WAY_RETRY_SECONDS
    if event.code == "Unavailable":
        return UNAVAILABLE_RETRIES.delay(record.retry.failures)
    return RETRIES.delay(record.retry.failures, jitter(record) / 2)


def jitter(record: PodRecord) -> float:
    """Between 0 and 1, the same for one pod and number of failures: a core has no dice."""
    return (sum(record.uid.encode()) + record.retry.failures * 7) % 100 / 100
