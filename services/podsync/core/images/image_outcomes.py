"""Changes the record after an image was inspected or pulled: the image, or why it is absent and when to try again.

pods.md 7.1, 7.3.
"""

from services.podsync.core.images.pull_backoff import count_pull_failure, registry_error
from services.podsync.core.pod.events import CallFailed
from services.podsync.core.pod.instructions import InspectImage, PullImage
from services.podsync.core.pod.progress import Progress
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.results import ImageInspected, ImagePulled
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace
from shared.time.timestamps import go_duration


def inspected(record: PodRecord, call: InspectImage, found: ImageInspected) -> PodRecord:
    """Record the image, which is present and may be used, or that it is to be pulled."""
    if _is_outdated(record, call):
        return record
    if found.image is None or found.must_pull:
        return _with(record, call, replace(_progress(record, call), must_pull=True))
    text = f'Container image "{call.image}" already present on machine and can be accessed by the pod'
    return _with_image(record, call, found.image).with_event("Normal", "Pulled", text, call.container)


def pulled(record: PodRecord, call: PullImage, result: ImagePulled) -> PodRecord:
    """Record that the image was pulled. The failures counted so far stay until they are too old, as in the kubelet, so
    that a registry with intermittent failures gets longer delays."""
    record = _with(record, call, replace(_progress(record, call), must_pull=False))
    image = result.image if not _is_outdated(record, call) else None
    return _with_image(record, call, image).with_event("Normal", "Pulled", _pulled(call.image, result), call.container)


def _with_image(record: PodRecord, call: InspectImage | PullImage, image: ImageStatus | None) -> PodRecord:
    """Record the image; None = it belongs to an earlier version of the spec."""
    progress = _progress(record, call)
    reason = None if call.volume else progress.reason  # a container shows its reason until it starts
    return _with(record, call, replace(progress, image=image or progress.image, reason=reason))


def inspection_failed(record: PodRecord, call: InspectImage, event: CallFailed, retry_at: float) -> PodRecord:
    """Record that it is not known whether the image is present. An event with a reason has the complete text."""
    if _is_outdated(record, call):
        return record
    record = _with(record, call, replace(_progress(record, call), retry_at=retry_at))
    if event.reason:
        return _with_reason(record, call, event.reason, event.text)
    text = f'Failed to inspect image "": {event.text}'
    record = record.with_event("Warning", "InspectFailed", text, call.container)
    return _with_reason(record, call, "ImageInspectError", text)


def pull_failed(record: PodRecord, call: PullImage, event: CallFailed, *, now: float, retry_at: float) -> PodRecord:
    """Record a failed pull. After a failure of the registry the delay grows; a pull that was never requested is tried
    again at `retry_at`."""
    if _is_outdated(record, call):
        return record
    if event.reason and event.reason != "ErrImagePull":
        record = _with(record, call, replace(_progress(record, call), retry_at=retry_at))
        return _with_reason(record, call, event.reason, event.text)
    reason, message = registry_error(call.image, event.text)
    text = f'Failed to pull image "{call.image}": {event.text}'
    record = _with_reason(record.with_event("Warning", "Failed", text, call.container), call, reason, message)
    return count_pull_failure(record, call.image, f"{reason}: {message}", now=now)


def _progress(record: PodRecord, call: InspectImage | PullImage) -> Progress:
    return record.progress(call.container, call.volume)


def _with(record: PodRecord, call: InspectImage | PullImage, progress: Progress) -> PodRecord:
    return record.with_progress(progress, call.container, call.volume)


def _with_reason(record: PodRecord, call: InspectImage | PullImage, reason: str, message: str) -> PodRecord:
    """Record the reason, with an event for a container; a volume's reason is shown by the containers that mount it."""
    record = _with(record, call, replace(_progress(record, call), reason=(reason, message)))
    if call.volume:
        return record
    return record.with_event("Warning", "Failed", f"Error: {reason}", call.container)


def _is_outdated(record: PodRecord, call: InspectImage | PullImage) -> bool:
    """Return whether the spec now names another image than the one that was requested."""
    return _current_image(record, call) != call.image


def _current_image(record: PodRecord, call: InspectImage | PullImage) -> str:
    entry = record.container(call.container)
    if entry is not None:
        return str(entry[1].get("image", ""))
    sources = (v.get("image") or {} for v in record.spec.get("volumes") or () if v.get("name") == call.volume)
    return next((str(source.get("reference", "")) for source in sources), call.image)


def _pulled(image: str, result: ImagePulled) -> str:
    size = result.image.size if result.image else 0
    took, waited = go_duration(_truncated(result.took)), go_duration(_truncated(result.waited))
    return f'Successfully pulled image "{image}" in {took} ({waited} including waiting). Image size: {size} bytes.'


def _truncated(seconds: float) -> float:
    return int(seconds * 1000) / 1000
