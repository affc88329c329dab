"""What is known after an image was looked for or pulled: the image, or why there is none and when to try again.

pods.md 7.1, 7.3. Changes the record only.
"""

from services.podsync.core.images.image_reference import InvalidImageNameError, with_default_tag
from services.podsync.core.images.pull_backoff import count_pull_failure, registry_error
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import InspectImage, PullImage
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.retry import container_later, volume_key
from shared.timestamps import go_duration


def take_in_inspection(record: PodRecord, call: InspectImage, event: CallDone) -> None:
    """It is there and may be used, or it is to be pulled."""
    if _is_outdated(record, call):
        return
    key = _key(call)
    if event.image is None or event.must_pull:
        record.pulls.add(key)
        return
    record.images[key] = event.image
    record.volume_reasons.pop(call.volume, None)
    text = f'Container image "{_as_named(record, call)}" already present on machine and can be accessed by the pod'
    record.note("Normal", "Pulled", text, call.container)


def take_in_pull(record: PodRecord, call: PullImage, event: CallDone) -> None:
    """It was pulled. What was counted of failures stays until it is too old, as in the kubelet: a registry that answers
    now and then is not asked as often as one that fails for the first time."""
    record.pulls.discard(_key(call))
    record.volume_reasons.pop(call.volume, None)
    if event.image is not None and not _is_outdated(record, call):
        record.images[_key(call)] = event.image
    record.note("Normal", "Pulled", _pulled(call.image, event), call.container)


def inspection_failed(record: PodRecord, call: InspectImage, event: CallFailed, retry_at: float) -> None:
    """Nobody knows whether it is there. A reason of the adapter's own is the whole text of what went wrong."""
    if _is_outdated(record, call):
        return
    record.retry = container_later(record.retry, _key(call), retry_at)
    if event.reason:
        _say(record, call, event.reason, event.text)
        return
    text = f'Failed to inspect image "": {event.text}'
    record.note("Warning", "InspectFailed", text, call.container)
    _say(record, call, "ImageInspectError", text)


def pull_failed(record: PodRecord, call: PullImage, event: CallFailed, *, now: float, retry_at: float) -> None:
    """A pull that failed at the registry waits longer each time; one that was never asked for is tried again soon."""
    if _is_outdated(record, call):
        return
    if event.reason and event.reason != "ErrImagePull":
        record.retry = container_later(record.retry, _key(call), retry_at)
        _say(record, call, event.reason, event.text)
        return
    reason, message = registry_error(call.image, event.text)
    record.note("Warning", "Failed", f'Failed to pull image "{call.image}": {event.text}', call.container)
    _say(record, call, reason, message)
    count_pull_failure(record, call.image, f"{reason}: {message}", now=now)


def _key(call: InspectImage | PullImage) -> str:
    return call.container or volume_key(call.volume)


def _say(record: PodRecord, call: InspectImage | PullImage, reason: str, message: str) -> None:
    """A container shows it at once; of a volume's image it is shown by whoever mounts it."""
    if call.volume:
        record.volume_reasons[call.volume] = (reason, message)
        return
    record.reasons[call.container] = (reason, message)
    record.note("Warning", "Failed", f"Error: {reason}", call.container)


def _is_outdated(record: PodRecord, call: InspectImage | PullImage) -> bool:
    """The spec has come to name another image while this one was asked for: the container is not made from it."""
    try:
        return with_default_tag(_as_named(record, call)) != call.image
    except InvalidImageNameError:
        return True


def _as_named(record: PodRecord, call: InspectImage | PullImage) -> str:
    """As the spec has it, without what was added."""
    found = record.container(call.container)
    if found is not None:
        return str(found[1].get("image", ""))
    sources = (v.get("image") or {} for v in record.spec.get("volumes") or () if v.get("name") == call.volume)
    return next((str(source.get("reference", "")) for source in sources), call.image)


def _pulled(image: str, event: CallDone) -> str:
    size = event.image.size if event.image else 0
    took, waited = go_duration(_truncated(event.took)), go_duration(_truncated(event.waited))
    return f'Successfully pulled image "{image}" in {took} ({waited} including waiting). Image size: {size} bytes.'


def _truncated(seconds: float) -> float:
    return int(seconds * 1000) / 1000
