"""What of a pod status from the API server may be gone on from: the parts that have the shape they should have.

Every client with the right may write a status, and Go writes an unset time as null: nothing here may be taken on trust.
"""

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
_TEXTS = ("phase", "reason", "message", "startTime", "qosClass", "hostIP", "podIP")
_CONTAINER_LISTS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_STATES = ("waiting", "running", "terminated")


def valid_status(given: Any) -> Json:
    """The status without what is null or odd; {} for no status at all."""
    if not isinstance(given, dict):
        return {}
    status: Json = {key: given[key] for key in _TEXTS if isinstance(given.get(key), str)}
    conditions = [_condition(c) for c in _dicts(given.get("conditions")) if _is_condition(c)]
    if conditions:
        status["conditions"] = conditions
    for name in ("podIPs", "hostIPs"):
        addresses = [{"ip": a["ip"]} for a in _dicts(given.get(name)) if isinstance(a.get("ip"), str)]
        if addresses:
            status[name] = addresses
    for name in _CONTAINER_LISTS:
        statuses = [_container(c) for c in _dicts(given.get(name)) if isinstance(c.get("name"), str)]
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
