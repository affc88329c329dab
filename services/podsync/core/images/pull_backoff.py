"""Names why a pull failed, and decides how long the next pull of that image waits (pods.md 7.1, 7.3)."""

from services.podsync.core.pod.saved import ImageBackoff
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.time.backoff import Backoff

PULLS = Backoff(initial=10.0, cap=300.0, reset_after=600.0)

REGISTRY_ERRORS = {
    "RegistryUnavailable": "the registry is unavailable",
    "SignatureValidationFailed": "the signature validation failed",
}
PULL_ERRORS = ("ErrImagePull", *REGISTRY_ERRORS)  # waiting reasons of a pull that failed, unlike that of one that waits


def registry_error(image: str, text: str) -> tuple[str, str]:
    """Return waiting reason and message for a failed pull with this error text: the runtime names two reasons."""
    for reason, because in REGISTRY_ERRORS.items():
        if text.startswith(reason):
            return reason, f"image pull failed for {image} because {because}{text.removeprefix(reason)}"
    return "ErrImagePull", text


def pull_waits_until(tracked: TrackedPod, image: str) -> float:
    """Return the steady seconds until which a pull of this image for this pod waits, 0 = it does not."""
    entry = tracked.saved.image_backoff.get(image)
    return entry.updated + entry.seconds if entry else 0.0


def count_pull_failure(tracked: TrackedPod, image: str, message: str, *, now: float) -> TrackedPod:
    """Return the pod with one more failed pull: the next pull waits 10 s, then twice as long each time up to 300
    s."""
    # Old entries go, also of images that the pod no longer names: it must not grow with each edit of the spec.
    kept = {i: e for i, e in tracked.saved.image_backoff.items() if not PULLS.is_reset(e.updated, now)}
    entry = kept.get(image)
    seconds = PULLS.next_delay(0.0 if entry is None else entry.seconds)
    kept[image] = ImageBackoff(seconds=seconds, updated=now, message=message)
    return replace(tracked, saved=replace(tracked.saved, image_backoff=kept))
