"""Validates a pod status from the API server: keeps the parts with the right types, from which decisions continue.
Any client with the right may write a status, and Go writes an unset time as null, so that each part is checked.
"""

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
_TEXTS = ("phase", "reason", "message", "startTime", "qosClass", "hostIP", "podIP")
_CONTAINER_LISTS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_STATES = ("waiting", "running", "terminated")


def valid_status(value: Any) -> Json:
    """Return the status without parts that are null or of a wrong type; {} for a value that is no status."""
    if not isinstance(value, dict):
        return {}
    status: Json = {key: value[key] for key in _TEXTS if isinstance(value.get(key), str)}
    conditions = [_condition(c) for c in _dicts(value.get("conditions")) if _is_condition(c)]
    if conditions:
        status["conditions"] = conditions
    for name in ("podIPs", "hostIPs"):
        addresses = [{"ip": a["ip"]} for a in _dicts(value.get(name)) if isinstance(a.get("ip"), str)]
        if addresses:
            status[name] = addresses
    for name in _CONTAINER_LISTS:
        statuses = [_container(c) for c in _dicts(value.get(name)) if isinstance(c.get("name"), str)]
        if name == "ephemeralContainerStatuses":
            statuses = [{key: value for key, value in c.items() if key != "started"} for c in statuses]
        if statuses:
            status[name] = statuses
    return status


def _dicts(values: Any) -> Iterable[Json]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _is_condition(condition: Json) -> bool:
    return isinstance(condition.get("type"), str) and isinstance(condition.get("status"), str)


def _condition(condition: Json) -> Json:
    return {key: value for key, value in condition.items() if value is not None and isinstance(value, str | int)}


def _container(status: Json) -> Json:
    sound = {key: value for key, value in status.items() if value is not None}
    count = status.get("restartCount")
    sound["restartCount"] = count if isinstance(count, int) and not isinstance(count, bool) else 0
    for key in ("state", "lastState"):
        sound[key] = _state(status.get(key))
    for key in ("ready", "started"):
        sound[key] = status.get(key) is True
    return sound


def _state(state: Any) -> Json:
    if not isinstance(state, dict):
        return {}
    known = {kind: dict(state[kind]) for kind in _STATES if isinstance(state.get(kind), dict)}
    if "terminated" in known and not isinstance(known["terminated"].get("exitCode"), int):
        known["terminated"]["exitCode"] = 0
    return known
