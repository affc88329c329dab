"""The checkpoint record of a pod: what of a `PodRecord` is saved, when that is urgent, and the way back.

Knows nothing of files.
"""

from dataclasses import fields as fields_of
from typing import Any, TypeVar

from bus.messages.podsync import PodState
from services.podsync.core.pod.record import CrashBackoff, ImageBackoff, PodRecord

_B = TypeVar("_B", CrashBackoff, ImageBackoff)

_FIELDS = {"judged": "admission_decided", "judged_in": "decided_by"}  # name in the checkpoint -> field of the record
TOLD_BY_RUNTIME = ("planned", "attempts", "sandbox_attempt")  # of the essential: as long as we remove nothing there


def essential(record: PodRecord) -> dict[str, Any]:
    """What must be on disk before it is published or acted on: ours alone, and not re-derivable."""
    return {
        "uid": record.uid,
        "name": record.name,
        "namespace": record.namespace,
        "source": record.source,
        "pod": record.pod,
        "state": str(record.state),
        "deleted": record.deleted,
        "restart_requested": record.restart_requested,
        "judged": record.admission_decided,
        "judged_in": record.decided_by,
        "active_since": record.active_since,
        "rejected": record.rejected,
        "rejected_message": record.rejected_message,
        "victims": list(record.victims),
        "ending": dict(record.ending),
        "refused_resize": dict(record.refused_resize),
        "outcome": record.outcome,
        "start_time": record.start_time,
        "terminating_since": record.terminating_since,
        "grace_seconds": record.grace_seconds,
        "termination_cause": record.termination_cause,
        "finished_at": record.finished_at,
        "sandbox_attempt": record.sandbox_attempt,
        "attempts": dict(record.attempts),
        "planned": dict(record.planned),
        "starting": dict(record.starting),
        "replacing": dict(record.replacing),
        "held_back": dict(record.held_back),
        "hooks_owed": dict(record.hooks_owed),
        "hooks_failed": dict(record.hooks_failed),
        "pre_stops": dict(record.pre_stops),
        "restarting_all": record.restarting_all,
        "crash_backoff": {name: vars(entry).copy() for name, entry in record.crash_backoff.items()},
        "image_backoff": {name: vars(entry).copy() for name, entry in record.image_backoff.items()},
    }


def must_be_saved(record: PodRecord, essentials: dict[str, Any]) -> bool:
    """Whether something changed that nobody else could tell the next life. What a finished pod looks like in the API
    server is not of that kind."""
    told_elsewhere = (*TOLD_BY_RUNTIME, "pod") if record.state is PodState.FINISHED else TOLD_BY_RUNTIME
    return any(value != record.saved.get(name) for name, value in essentials.items() if name not in told_elsewhere)


def persisted(record: PodRecord) -> dict[str, Any]:
    """The checkpoint record: the essential and the newest status."""
    return {**essential(record), "status": record.status}


def restore(data: dict[str, Any]) -> PodRecord:
    """The inverse of `persisted`, for records of older and newer versions too: what is unknown is left out, what is
    missing has its default. Raises KeyError, TypeError, ValueError or AttributeError for anything else."""
    known = persisted(PodRecord(uid="", name="", namespace=""))
    fields = {"uid": data["uid"], "name": data["name"], "namespace": data["namespace"], "state": data["state"]}
    fields |= {name: value for name, value in data.items() if name in known}
    for name, value in fields.items():
        if not isinstance(value, float | int if isinstance(known[name], float) else type(known[name])):
            raise TypeError(f"{name} is a {type(value).__name__}")
    fields["state"] = PodState(fields["state"])
    fields["crash_backoff"] = _backoffs(CrashBackoff, fields.get("crash_backoff", {}))
    fields["image_backoff"] = _backoffs(ImageBackoff, fields.get("image_backoff", {}))
    fields["pre_stops"] = {name: at for name, at in fields.get("pre_stops", {}).items() if isinstance(at, float | int)}
    record = PodRecord(**{_FIELDS.get(name, name): value for name, value in fields.items()})
    record.restored = True
    record.saved = essential(record)
    return record


def _backoffs(kind: type[_B], saved: dict[str, Any]) -> dict[str, _B]:
    """By name; an entry that is not understood is left out, and that back-off begins anew."""
    types = {field.name: (float, int) if field.type is float else str for field in fields_of(kind)}
    found: dict[str, _B] = {}
    for name, value in saved.items():
        known = {key: part for key, part in value.items() if key in types} if isinstance(value, dict) else {}
        if known.keys() == types.keys() and all(isinstance(part, types[key]) for key, part in known.items()):
            found[name] = kind(**known)
    return found
