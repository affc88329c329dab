"""Merges podsync's status of a pod with what others wrote to the API server (pods.md 9.4, 9.5).

Pure; statuses are raw PodStatus objects, and unexpected values raise nothing.
"""

from typing import Any

from services.status.core.strategic_patch import POD, patch_without_nulls, same_json, without_nulls
from shared.model.conditions import DISRUPTION_TARGET, POD_CONDITIONS, POD_SCHEDULED, is_of_shutdown
from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object

TERMINAL = ("Succeeded", "Failed")

_OWN_FIELDS = frozenset(
    {
        "observedGeneration",
        "phase",
        "reason",
        "message",
        "startTime",
        "hostIP",
        "hostIPs",
        "podIP",
        "podIPs",
        "qosClass",
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
        "resources",
        "allocatedResources",
        "resize",
        "volumeHealth",
    }
)
_ORDER = "$setElementOrder/"


def status_of(pod: Object) -> Object:
    """Return the object's status; {} when it has none."""
    return dictionary(pod.get("status"))


def is_terminal(status: Object) -> bool:
    """Return whether the phase is Succeeded or Failed."""
    return status.get("phase") in TERMINAL


def merged_status(api: Object, wanted: Object, *, now: str) -> Object:
    """Return the status to write over `api` when podsync publishes `wanted`, neither with nulls; `now` is RFC3339.

    Fields and conditions that are not the node's stay. A terminal phase is never left again, and makes the pod unready.
    """
    merged = {key: value for key, value in api.items() if key not in _OWN_FIELDS}
    merged |= {key: value for key, value in wanted.items() if key in _OWN_FIELDS}
    if api.get("qosClass"):
        merged["qosClass"] = api["qosClass"]  # it is decided at creation, and a newer API server refuses a change
    first_start = text(api.get("startTime"))
    if first_start and first_start < (text(wanted.get("startTime")) or "~"):
        merged["startTime"] = api["startTime"]  # the first acknowledgement counts, for activeDeadlineSeconds
    if _number(api, "observedGeneration") > _number(wanted, "observedGeneration"):
        merged["observedGeneration"] = api["observedGeneration"]
    if is_terminal(api) and wanted.get("phase") != api["phase"]:
        for key in ("phase", "reason", "message"):
            merged.pop(key, None)
        merged |= {key: api[key] for key in ("phase", "reason", "message") if key in api}
    for key in ("containerStatuses", "ephemeralContainerStatuses"):
        if key in merged:
            merged[key] = sorted(merged[key], key=_name) if isinstance(merged[key], list) else []
    conditions = _merged_conditions(api, wanted, now=now)
    if is_terminal(merged):
        before = {condition["type"]: condition for condition in _conditions(api)}
        conditions = [_unready(c, merged["phase"], before.get(c["type"], {}), now=now) for c in conditions]
    merged.pop("conditions", None)
    return {**merged, "conditions": conditions} if conditions or "conditions" in api else merged


def status_patch(api: Object, wanted: Object, *, now: str) -> Object | None:
    """Return the `status` of the patch that makes the API object show `wanted`; None when it does already. Conditions
    in another order are no difference."""
    before = without_nulls(status_of(api))
    merged = merged_status(before, without_nulls(wanted), now=now)
    if same_json(before, merged):
        return None
    patch = patch_without_nulls({"status": before}, {"status": merged}, POD)
    changes: Object = patch.get("status") or {}
    return changes if any(not key.startswith(_ORDER) for key in changes) else None


def _merged_conditions(api: Object, wanted: Object, *, now: str) -> list[Object]:
    before = {condition["type"]: condition for condition in _conditions(api)}
    ended_now = is_terminal(wanted) and not is_terminal(api)
    foreign = [c for kind, c in before.items() if kind not in POD_CONDITIONS and kind != DISRUPTION_TARGET]
    own = [_scheduled(c, before) for c in _conditions(wanted) if c["type"] in POD_CONDITIONS]
    disruption = next((c for c in _conditions(wanted) if c["type"] == DISRUPTION_TARGET), None)
    if disruption is not None and ended_now:
        return [*foreign, *own, {**disruption, "lastTransitionTime": now}]
    if disruption is not None and is_of_shutdown(disruption):
        return [*foreign, *own, disruption]
    theirs = before.get(DISRUPTION_TARGET)
    return [*foreign, *own, *([] if theirs is None or (is_of_shutdown(theirs) and not is_terminal(api)) else [theirs])]


def _scheduled(condition: Object, before: dict[str, Object]) -> Object:
    """Return a PodScheduled condition with the scheduler's transition time, and any other one as it is."""
    scheduled = before.get(POD_SCHEDULED, {})
    if condition["type"] != POD_SCHEDULED or scheduled.get("status") != condition.get("status"):
        return condition
    return condition | {key: scheduled[key] for key in ("lastTransitionTime",) if key in scheduled}


def _unready(condition: Object, phase: str, before: Object, *, now: str) -> Object:
    """Return a Ready that podsync still publishes as False, with the transition time of the API (`before`), if any."""
    if condition["type"] not in ("Ready", "ContainersReady") or condition.get("status") == "False":
        return condition
    kept = {key: value for key, value in condition.items() if key != "message"}
    reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    since = before.get("lastTransitionTime", now) if before.get("status") == "False" else now
    return kept | {"status": "False", "reason": reason, "lastTransitionTime": since}


def _conditions(status: Object) -> list[Object]:
    return [found for found in dictionaries(status.get("conditions")) if isinstance(found.get("type"), str)]


def _number(status: Object, key: str) -> int:
    value = status.get(key)
    return value if isinstance(value, int) else 0


def _name(status: Any) -> str:
    return str(status.get("name", "")) if isinstance(status, dict) else ""
