"""Changes the tracked pod after an image was inspected or pulled: the image, or why it is absent and when to try again.

pods.md 7.1, 7.3.
"""

from services.podsync.core.images.pull_backoff import count_pull_failure, registry_error
from services.podsync.core.pod.call_results import ImageInspected, ImagePulled
from services.podsync.core.pod.events import CallFailed
from services.podsync.core.pod.instructions import InspectImage, PullImage
from services.podsync.core.pod.progress import Progress
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace
from shared.time.timestamps import go_duration


def inspected(tracked: TrackedPod, call: InspectImage, found: ImageInspected) -> TrackedPod:
    """Record the image, which is present and may be used, or that it is to be pulled."""
    if _is_outdated(tracked, call):
        return tracked
    if found.image is None or found.must_pull:
        return _with(tracked, call, replace(_progress(tracked, call), must_pull=True))
    text = f'Container image "{call.image}" already present on machine and can be accessed by the pod'
    return _with_image(tracked, call, found.image).with_event("Normal", "Pulled", text, call.container)


def pulled(tracked: TrackedPod, call: PullImage, result: ImagePulled) -> TrackedPod:
    """Record that the image was pulled. The failures counted so far stay until they are too old, as in the kubelet, so
    that a registry with intermittent failures gets longer delays."""
    tracked = _with(tracked, call, replace(_progress(tracked, call), must_pull=False))
    image = result.image if not _is_outdated(tracked, call) else None
    return _with_image(tracked, call, image).with_event("Normal", "Pulled", _pulled(call.image, result), call.container)


def _with_image(tracked: TrackedPod, call: InspectImage | PullImage, image: ImageStatus | None) -> TrackedPod:
    """Record the image; None = it belongs to an earlier version of the spec."""
    progress = _progress(tracked, call)
    reason = (
        None if call.volume else progress.reason
    )  # the status of a container shows the reason until the container starts
    return _with(tracked, call, replace(progress, image=image or progress.image, reason=reason))


def inspection_failed(tracked: TrackedPod, call: InspectImage, event: CallFailed, retry_at: float) -> TrackedPod:
    """Record that it is not known whether the image is present. An event with a reason has the complete text."""
    if _is_outdated(tracked, call):
        return tracked
    tracked = _with(tracked, call, replace(_progress(tracked, call), retry_at=retry_at))
    if event.reason:
        return _with_reason(tracked, call, event.reason, event.text)
    text = f'Failed to inspect image "": {event.text}'
    tracked = tracked.with_event("Warning", "InspectFailed", text, call.container)
    return _with_reason(tracked, call, "ImageInspectError", text)


def pull_failed(tracked: TrackedPod, call: PullImage, event: CallFailed, *, now: float, retry_at: float) -> TrackedPod:
    """Record a failed pull. After a failure of the registry the delay grows; a pull that was never requested is tried
    again at `retry_at`."""
    if _is_outdated(tracked, call):
        return tracked
    if event.reason and event.reason != "ErrImagePull":
        tracked = _with(tracked, call, replace(_progress(tracked, call), retry_at=retry_at))
        return _with_reason(tracked, call, event.reason, event.text)
    reason, message = registry_error(call.image, event.text)
    text = f'Failed to pull image "{call.image}": {event.text}'
    tracked = _with_reason(tracked.with_event("Warning", "Failed", text, call.container), call, reason, message)
    return count_pull_failure(tracked, call.image, f"{reason}: {message}", now=now)


def _progress(tracked: TrackedPod, call: InspectImage | PullImage) -> Progress:
    return tracked.progress(call.container, call.volume)


def _with(tracked: TrackedPod, call: InspectImage | PullImage, progress: Progress) -> TrackedPod:
    return tracked.with_progress(progress, call.container, call.volume)


def _with_reason(tracked: TrackedPod, call: InspectImage | PullImage, reason: str, message: str) -> TrackedPod:
    """Record the reason, with an event for a container; a volume's reason is shown by the containers that mount it."""
    tracked = _with(tracked, call, replace(_progress(tracked, call), reason=(reason, message)))
    if call.volume:
        return tracked
    return tracked.with_event("Warning", "Failed", f"Error: {reason}", call.container)


def _is_outdated(tracked: TrackedPod, call: InspectImage | PullImage) -> bool:
    """Return whether the spec now names another image than the one that was requested."""
    return _current_image(tracked, call) != call.image


def _current_image(tracked: TrackedPod, call: InspectImage | PullImage) -> str:
    entry = tracked.container(call.container)
    if entry is not None:
        return str(entry[1].get("image", ""))
    sources = (v.get("image") or {} for v in tracked.spec.get("volumes") or () if v.get("name") == call.volume)
    return next((str(source.get("reference", "")) for source in sources), call.image)


def _pulled(image: str, result: ImagePulled) -> str:
    size = result.image.size if result.image else 0
    took, waited = go_duration(_truncated(result.took)), go_duration(_truncated(result.waited))
    return f'Successfully pulled image "{image}" in {took} ({waited} including waiting). Image size: {size} bytes.'


def _truncated(seconds: float) -> float:
    return int(seconds * 1000) / 1000
