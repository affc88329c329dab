"""Makes the node's conditions with their transition times, and the events and history of changes (node.md 1.7)."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from shared.model.conditions import NODE_CONDITIONS, PRESSURE_CONDITIONS

Condition = dict[str, str]
MAX_KEPT_CHANGES = 200  # changes of conditions in the record, for `bulkhead explain node`
MAX_MESSAGE_CHARACTERS = 1024  # of a condition's message in such a change


class Transition(Struct, frozen=True):
    """A change of a condition's status. `reason`: that of the node event to record."""

    reason: str


def ready_condition(*, ready: bool, message: str, now: str, previous: Condition | None) -> Condition:
    """Return the Ready condition with the present reason and message. The transition time changes only with the status.
    `now`: RFC3339."""
    status = "True" if ready else "False"
    kept = previous is not None and previous["status"] == status
    return {
        "type": "Ready",
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": previous["lastTransitionTime"] if previous is not None and kept else now,
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": message,
    }


def joined(pressure: Iterable[Mapping[str, str]], ready: Condition, *, now: str) -> tuple[Condition, ...]:
    """Return all conditions in the kubelet's order, each with the heartbeat `now`."""
    by_type = {condition["type"]: {**condition, "lastHeartbeatTime": now} for condition in pressure}
    by_type["Ready"] = ready
    others = [name for name in by_type if name not in NODE_CONDITIONS]
    return tuple(by_type[name] for name in (*PRESSURE_CONDITIONS, *others, "Ready") if name in by_type)


def transitions(before: Iterable[Condition], after: Iterable[Condition]) -> list[Transition]:
    """Return the node events that follow from changed conditions: for every changed status, and for a pressure
    condition that appears, but not for the first Ready."""
    statuses = {condition["type"]: condition["status"] for condition in before}
    events = []
    for condition in after:
        known = statuses.get(condition["type"])
        if known == condition["status"] or (known is None and condition["type"] == "Ready"):
            continue
        reason = condition["reason"]
        if condition["type"] == "Ready":
            reason = "NodeReady" if condition["status"] == "True" else "NodeNotReady"
        elif condition["type"] in NODE_CONDITIONS:
            reason = f"Node{reason.removeprefix('Kubelet')}"
        events.append(Transition(reason))
    return events


def with_changes(
    history: Iterable[Condition], before: Iterable[Condition], after: Iterable[Condition]
) -> tuple[Condition, ...]:
    """Return the newest `MAX_KEPT_CHANGES` changes: the history, and each condition of `after` whose status or reason
    differs from `before`. A change has the fields type, status, reason, message and at (RFC3339)."""
    known = {condition["type"]: (condition["status"], condition["reason"]) for condition in before}
    changes = [
        {
            **{name: condition[name][:MAX_MESSAGE_CHARACTERS] for name in ("type", "status", "reason", "message")},
            "at": condition.get("lastHeartbeatTime", ""),
        }
        for condition in after
        if known.get(condition["type"]) != (condition["status"], condition["reason"])
    ]
    return (*history, *changes)[-MAX_KEPT_CHANGES:]


def is_change(value: object) -> bool:
    """Return whether the value has the fields of a change, as text."""
    fields = ("type", "status", "reason", "message", "at")
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in fields)


def same_but_for(before: Iterable[Condition], after: Iterable[Condition], *ignored: str) -> bool:
    """Return whether the conditions are equal apart from these fields."""

    def reduced(conditions: Iterable[Condition]) -> list[Condition]:
        return [{key: value for key, value in c.items() if key not in ignored} for c in conditions]

    return reduced(before) == reduced(after)


def with_api_conditions(ours: Iterable[Condition], theirs: object) -> tuple[Condition, ...]:
    """Return our conditions on the baseline of the API server's list: a condition that we have not decided yet is
    copied from it, and one with the same status gets its transition time. `theirs` may be any value; entries that are
    no conditions are left out."""
    known = {c["type"]: c for c in theirs if is_condition(c)} if isinstance(theirs, list) else {}
    places = {kind: place for place, kind in enumerate(NODE_CONDITIONS)}
    kept = []
    for condition in ours:
        theirs_of_it = known.pop(condition["type"], None)
        same = theirs_of_it is not None and theirs_of_it["status"] == condition["status"]
        moment = theirs_of_it["lastTransitionTime"] if theirs_of_it is not None and same else None
        kept.append({**condition, "lastTransitionTime": moment} if moment else condition)
    taken = [{k: v for k, v in c.items() if isinstance(v, str)} for c in known.values() if c["type"] in places]
    return tuple(sorted([*kept, *taken], key=lambda c: places.get(c["type"], -1)))


def is_condition(value: object) -> bool:
    """Return whether the value has the fields of a condition, as text."""
    fields = ("type", "status", "reason", "message", "lastTransitionTime")
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in fields)
