"""What the API server is known to have of a pod: the newest of what the watch shows and what it answered us. Pure."""

from dataclasses import dataclass

from services.status.core.strategic_patch import without_nulls
from shared.model.objects import Object

_KEPT = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds")
_LONGEST_VERSION = 64  # digits; int() refuses thousands


@dataclass(frozen=True)
class Baseline:
    """`pod` as last known; None = nothing is known. `certain`: no reason to ask before something is written over it."""

    pod: Object | None
    certain: bool


def newest(watched: Object | None, answered: Object | None, *, in_step: bool) -> Baseline:
    """`in_step`: the watch is followed without a gap. Versions that cannot be compared give `certain` False."""
    if watched is None or answered is None:
        return Baseline(watched or answered, certain=answered is not None or (watched is not None and in_step))
    seen, written = version(watched), version(answered)
    if seen is None or written is None:
        return Baseline(watched, certain=False)
    if written > seen:
        return Baseline(answered, certain=True)
    return Baseline(watched, certain=in_step or written == seen)


def version(pod: Object) -> int | None:
    """metadata.resourceVersion as a number that grows; None when it is none."""
    text = metadata(pod).get("resourceVersion")
    if not isinstance(text, str) or len(text) > _LONGEST_VERSION:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def metadata(pod: Object) -> Object:
    """The object's metadata; {} when it has none."""
    value = pod.get("metadata")
    return value if isinstance(value, dict) else {}


def kept_of(answer: Object) -> Object:
    """The part of an answer that later decisions need, without the spec and without nulls."""
    status = answer.get("status")
    return {
        "metadata": {key: value for key, value in metadata(answer).items() if key in _KEPT},
        "status": without_nulls(status) if isinstance(status, dict) else {},
    }
