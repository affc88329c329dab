"""Says for which volumes a pod waits that volume will never mount, because their type is not supported. The
types and the texts are in `shared/podspec/volume_types.py`. Pure."""

from services.podsync.core.pod.tracked_pod import TrackedPod


def describe_unsupported(tracked: TrackedPod) -> str:
    """Return the first of these volumes, as the end of a sentence that begins with "waits for"; "" = there is none."""
    volumes = tracked.volumes.volumes if tracked.volumes is not None else {}
    return next((f"volume {name}: {volumes[name].error}" for name in sorted(volumes) if volumes[name].unsupported), "")
