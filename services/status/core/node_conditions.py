"""The node's conditions and their transition times, and when a change of them is worth publishing (node.md 1.7)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Condition = dict[str, str]

_ORDER = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


@dataclass(frozen=True)
class Transition:
    """A condition changed its status: the reason of the node event to record."""

    reason: str


def ready_condition(*, ready: bool, message: str, now: str, previous: Condition | None) -> Condition:
    """The Ready condition. Reason and message are of now; the transition time moves with the status only.
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
    """All conditions in the kubelet's order, each with this heartbeat."""
    by_type = {condition["type"]: {**condition, "lastHeartbeatTime": now} for condition in pressure}
    by_type["Ready"] = ready
    others = [name for name in by_type if name not in _ORDER]
    return tuple(by_type[name] for name in (*_ORDER[:-1], *others, "Ready") if name in by_type)


def transitions(before: Iterable[Condition], after: Iterable[Condition]) -> list[Transition]:
    """Which node events follow: every changed status, and a pressure condition that appears; not a first Ready."""
    statuses = {condition["type"]: condition["status"] for condition in before}
    events = []
    for condition in after:
        known = statuses.get(condition["type"])
        if known == condition["status"] or (known is None and condition["type"] == "Ready"):
            continue
        reason = condition["reason"]
        if condition["type"] == "Ready":
            reason = "NodeReady" if condition["status"] == "True" else "NodeNotReady"
        elif condition["type"] in _ORDER:
            reason = f"Node{reason.removeprefix('Kubelet')}"
        events.append(Transition(reason))
    return events


def same_but_for(before: Iterable[Condition], after: Iterable[Condition], *ignored: str) -> bool:
    """Equal when these fields are left out."""

    def reduced(conditions: Iterable[Condition]) -> list[Condition]:
        return [{key: value for key, value in c.items() if key not in ignored} for c in conditions]

    return reduced(before) == reduced(after)
