"""What is known of a pod after one of our own calls came back (design part 5: podsync knows the outcome itself).

Changes the record only; what follows from it is decided by `steps`.
"""

from dataclasses import replace

from services.podsync.core.actions import decide_sandbox
from services.podsync.core.events import CallDone, CallFailed
from services.podsync.core.images import count_pull_failure
from services.podsync.core.instructions import (
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
    StartContainer,
)
from services.podsync.core.record import PodRecord
from shared.model.runtime import Container, ContainerState, RuntimePod
from shared.podspec.hashing import container_hash
from shared.timestamps import go_duration

FIRST_RETRY_SECONDS = 1.0
RETRY_SECONDS = 10.0  # the kubelet's back-off for a failed sync, before jitter
IN_THE_WAY = ("is reserved for", "already in starting state", "is in CONTAINER_EXITED state")
IN_THE_WAY_RETRY_SECONDS = 0.25
IN_THE_WAY_RETRIES = 20
UNHEARD = ("Unavailable", "Canceled", "DeadlineExceeded")  # the call may have been carried out or not
UNAVAILABLE_RETRY_SECONDS = 5.0  # safety net: the runtime's return is an event
NANOSECONDS = 1e9


def take_in_success(record: PodRecord, event: CallDone, now: float) -> None:
    """The call did what it says."""
    if not isinstance(event.call, LookAtPod | InspectImage):
        record.failures = 0
        record.last_done = replace(event.call, cause="")
    record.retry_at = 0.0
    match event.call:
        case KillPod(sandboxes=sandboxes):
            record.stopped_sandboxes.update(sandboxes)
            record.observe(event.observation, event.completed_at)
            if record.alive:  # the runtime said stopped and shows it running: do not ask again at once
                record.retry_at = now + FIRST_RETRY_SECONDS
        case RunPodSandbox():
            record.observe(event.observation, event.completed_at)
            for reason, message in event.warnings:
                record.note("Warning", reason, message, "")
            if decide_sandbox(record).create:  # it is not what was asked for: do not make sandboxes in a circle
                record.retry_at = now + RETRY_SECONDS
        case PreparePod():
            record.prepared = True
            for container, attempt in event.log_attempts.items():
                lost = any(c.name == container and c.restart_count == attempt for c in record.interrupted)
                if attempt or not lost:
                    record.attempts.setdefault(container, attempt - lost)
        case InspectImage(container=container):
            _take_in_inspection(record, container, event)
        case PullImage(container=container, image=image):
            record.pulls.discard(container)
            record.image_backoff.pop(image, None)
            if event.image is not None:
                record.images[container] = event.image
            record.note("Normal", "Pulled", _pulled(image, event), container)
        case CreateContainer(container=container):
            _take_in_creation(record, event.call, event)
            record.note("Normal", "Created", "Container created", container)
        case StartContainer(container=container):
            record.reasons.pop(container, None)
            record.replacing.pop(container, None)
            record.starting.pop(container, None)
            record.start_retry_at.clear()
            record.observe(event.observation, event.completed_at)
            record.note("Normal", "Started", "Container started", container)
        case ReleasePod():
            record.released = True
        case RemovePodLogs():
            record.logs_removed = True
        case _:
            record.observe(event.observation, event.completed_at)


def _take_in_inspection(record: PodRecord, container: str, event: CallDone) -> None:
    if event.image is None:
        record.pulls.add(container)
        return
    record.images[container] = event.image
    image = next((str(c.get("image", "")) for c in record.containers if c["name"] == container), "")
    text = f'Container image "{image}" already present on machine and can be accessed by the pod'
    record.note("Normal", "Pulled", text, container)


def _pulled(image: str, event: CallDone) -> str:
    size = event.image.size if event.image else 0
    took, waited = go_duration(_truncated(event.took)), go_duration(_truncated(event.waited))
    return f'Successfully pulled image "{image}" in {took} ({waited} including waiting). Image size: {size} bytes.'


def _truncated(seconds: float) -> float:
    return int(seconds * 1000) / 1000


def _take_in_creation(record: PodRecord, call: CreateContainer, event: CallDone) -> None:
    """Know of the new container without asking the runtime: its start follows at once, and that looks."""
    record.images.pop(call.container, None)
    spec = next((c for c in record.containers if c["name"] == call.container), None)
    if spec is None or any(c.id == event.container_id for c in record.instances):
        record.looked = record.looked and spec is not None  # seen by pleg already, or no part of the pod any more
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
    seen = record.observation
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
    if not isinstance(call, InspectImage | PullImage):
        record.looked = False
    record.failures += 1
    match call:
        case CreateContainer(container=name) | StartContainer(container=name):
            retry_at = now + _retry_after(record, event)
            if isinstance(call, StartContainer):
                record.start_retry_at[call.container_id] = retry_at
                if event.code not in UNHEARD and not is_in_the_way(event):
                    record.starting.pop(name, None)  # the runtime has told how the start went
            else:
                record.container_retry_at[name] = retry_at
            if is_in_the_way(event) and not _in_the_way_for_long(record):
                return
            default = "CreateContainerError" if isinstance(call, CreateContainer) else "RunContainerError"
            text = event.description if not event.reason else event.text
            record.reasons[name] = (event.reason or default, text)
            record.note("Warning", "Failed", f"Error: {text}", name)
            if isinstance(call, CreateContainer):
                record.images.pop(name, None)
        case InspectImage(container=name):
            text = f'Failed to inspect image "": {event.text}'
            record.reasons[name] = ("ImageInspectError", text)
            record.note("Warning", "InspectFailed", text, name)
            record.note("Warning", "Failed", "Error: ImageInspectError", name)
            record.container_retry_at[name] = now + _retry_after(record, event)
        case PullImage(container=name, image=image):
            record.reasons[name] = ("ErrImagePull", event.text)
            record.note("Warning", "Failed", f'Failed to pull image "{image}": {event.text}', name)
            record.note("Warning", "Failed", "Error: ErrImagePull", name)
            count_pull_failure(record, image, f"ErrImagePull: {event.text}", now=now)
            record.pulls.discard(name)  # it may have been imported meanwhile: look before the next pull
        case RemoveContainers() | RemoveSandboxes():
            record.removal_retry_at = now + _retry_after(record, event)
        case _:
            _note_pod_failure(record, call, event)
            record.retry_at = now + _retry_after(record, event)


def _note_pod_failure(record: PodRecord, call: Call, event: CallFailed) -> None:
    match call:
        case RunPodSandbox() if is_in_the_way(event) and not _in_the_way_for_long(record):
            return
        case RunPodSandbox():
            record.note("Warning", "FailedCreatePodSandBox", f"Failed to create pod sandbox: {event.text}", "")
        case PreparePod():
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
    """A call of an earlier life is still being done or undone: the attempt's name is taken, or its start under way.
    The call had no effect, and the runtime tells nobody when the way is free."""
    return any(text in event.description for text in IN_THE_WAY)


def _in_the_way_for_long(record: PodRecord) -> bool:
    """The runtime neither shows what is in the way nor lets go of it: from here on it is an ordinary failure."""
    return record.failures > IN_THE_WAY_RETRIES


def _retry_after(record: PodRecord, event: CallFailed) -> float:
    """Seconds until a failed call is tried again; jitter comes from the UID, so that pods do not retry in step."""
    if is_in_the_way(event) and not _in_the_way_for_long(record):
        return IN_THE_WAY_RETRY_SECONDS
    if event.code == "Unavailable":
        return UNAVAILABLE_RETRY_SECONDS
    seconds = FIRST_RETRY_SECONDS if record.failures == 1 else RETRY_SECONDS
    return seconds * (1 + jitter(record) / 2)


def jitter(record: PodRecord) -> float:
    """Between 0 and 1, the same for one pod and number of failures: a core has no dice."""
    return (sum(record.uid.encode()) + record.failures * 7) % 100 / 100
