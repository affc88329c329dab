"""Finds the newest known version of a pod in the API server: what the watch shows or what our request returned.
Pure."""

from msgspec import Struct

from services.status.core.strategic_patch import without_nulls
from shared.model.fields import dictionary
from shared.model.objects import Object

_KEPT = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds")
_MAX_VERSION_DIGITS = 64  # int() raises for thousands of digits


class Baseline(Struct, frozen=True):
    """The newest known version of a pod; None = nothing is known. `certain`: it need not be read before it is
    written."""

    pod: Object | None
    certain: bool


def newest(watched: Object | None, answered: Object | None, *, in_step: bool) -> Baseline:
    """Return the newer of two versions of a pod. `in_step`: the watch is followed without a gap. Versions that cannot
    be compared are not `certain`."""
    if watched is None or answered is None:
        return Baseline(watched or answered, certain=answered is not None or (watched is not None and in_step))
    seen, written = version(watched), version(answered)
    if seen is None or written is None:
        return Baseline(watched, certain=False)
    if written > seen:
        return Baseline(answered, certain=True)
    return Baseline(watched, certain=in_step or written == seen)


def version(pod: Object) -> int | None:
    """Return metadata.resourceVersion as a number, None when it is none."""
    text = metadata(pod).get("resourceVersion")
    if not isinstance(text, str) or len(text) > _MAX_VERSION_DIGITS:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def metadata(pod: Object) -> Object:
    """Return the object's metadata; {} when it has none."""
    return dictionary(pod.get("metadata"))


def kept_of(answer: Object) -> Object:
    """Return the part of an answer that later decisions need, without the spec and without nulls."""
    kept = {key: value for key, value in metadata(answer).items() if key in _KEPT}
    return {"metadata": kept, "status": without_nulls(dictionary(answer.get("status")))}
