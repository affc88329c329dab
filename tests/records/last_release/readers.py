"""How the last release reads records: copies of its rules, so that what this version writes can be tried against them.

Replaced, with the recorded files beside it, when the next release is made.
"""

import json
from typing import Any

STATES = ("sync", "terminating", "terminated", "finished")
POD_FIELDS: dict[str, type | tuple[type, ...]] = {
    "uid": str,
    "name": str,
    "namespace": str,
    "source": str,
    "pod": dict,
    "state": str,
    "deleted": bool,
    "restart_requested": bool,
    "judged": bool,
    "active_since": (float, int),
    "rejected": str,
    "rejected_message": str,
    "victims": list,
    "ending": dict,
    "outcome": str,
    "start_time": str,
    "terminating_since": (float, int),
    "grace_seconds": int,
    "termination_cause": str,
    "finished_at": (float, int),
    "sandbox_attempt": int,
    "attempts": dict,
    "planned": dict,
    "starting": dict,
    "replacing": dict,
    "held_back": dict,
    "hooks_owed": dict,
    "hooks_failed": dict,
    "restarting_all": bool,
    "crash_backoff": dict,
    "image_backoff": dict,
    "status": dict,
}
BACKOFF_FIELDS = {
    "crash_backoff": {"key", "seconds", "updated", "instance"},
    "image_backoff": {"seconds", "updated", "message"},
}


def envelope(content: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """Key, number and data of a checkpoint file. Raises ValueError for one that is set aside as corrupt."""
    match content:
        case {"version": 1, "key": str(key), "number": int(number), "data": dict(data)}:
            return key, number, data
    raise ValueError("not a record of a version known here")


def pod(data: dict[str, Any]) -> dict[str, Any]:
    """What is understood of a pod's record. Raises KeyError, TypeError, ValueError for one that is dropped."""
    fields = {name: data[name] for name in ("uid", "name", "namespace", "state")}
    fields |= {name: value for name, value in data.items() if name in POD_FIELDS}
    for name, value in fields.items():
        if not isinstance(value, POD_FIELDS[name]):
            raise TypeError(f"{name} is a {type(value).__name__}")
    if fields["state"] not in STATES:
        raise ValueError(fields["state"])
    for name, known in BACKOFF_FIELDS.items():
        for entry in fields.get(name, {}).values():
            if set(entry) != known:
                raise TypeError(f"{name}: {set(entry) ^ known}")
    return fields


def manifest(data: dict[str, Any]) -> dict[str, Any] | None:
    """The pod of a manifest's record, None for one that is dropped."""
    match data:
        case {
            "version": 1,
            "pod": {"metadata": {"uid": str(), "name": str(), "namespace": str()}, "spec": {"nodeName": str()}},
        }:
            found: dict[str, Any] = data["pod"]
            return found
    return None


def first_seen(data: dict[str, Any]) -> dict[str, str]:
    """UID -> when it was first seen."""
    match data:
        case {"version": 1, "pods": dict(pods)}:
            return {uid: seen for uid, seen in pods.items() if isinstance(uid, str) and isinstance(seen, str)}
    return {}


def conditions(data: dict[str, Any]) -> list[dict[str, str]]:
    """The node's conditions; none where one of them is no condition."""
    fields = ("type", "status", "reason", "message", "lastTransitionTime")
    match data:
        case {"conditions": [*found]} if all(isinstance(c.get(name), str) for c in found for name in fields):
            return list(found)
    return []


def agent(data: dict[str, Any], generation: str) -> bool | None:
    """Whether the Node was last seen cordoned; None for the record of another start of the agent."""
    return data.get("unschedulable") is True if data.get("generation") == generation else None


def lock(content: bytes) -> tuple[int, list[tuple[float, float]]]:
    """The process that holds the lock, and the starts it counts. Raises KeyError, TypeError, ValueError."""
    record = json.loads(content[:1024])
    return int(record["pid"]), [(float(at), float(delay)) for at, delay in record["starts"]]
