"""Builds the node's pressure conditions, with the times of their transitions (node.md 1.7)."""

from collections.abc import Mapping, Set
from typing import Any

from bus.messages.podsync import NodePressure
from shared.model.conditions import PRESSURE_CONDITIONS
from shared.time.timestamps import rfc3339

TEXTS = {
    "MemoryPressure": (
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    "DiskPressure": (
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    "PIDPressure": (
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
}

Transitions = Mapping[str, tuple[str, float]]  # condition -> status, wall seconds of its last change


def transitions_of(before: Transitions, pressed: Set[str], now: float) -> dict[str, tuple[str, float]]:
    """Return the transitions by condition, where `pressed` are the conditions that are True at `now`, wall seconds."""
    transitions = {}
    for kind in PRESSURE_CONDITIONS:
        status = "True" if kind in pressed else "False"
        known = before.get(kind)
        transitions[kind] = known if known is not None and known[0] == status else (status, now)
    return transitions


def node_pressure(transitions: Transitions) -> NodePressure:
    """Return the item of the stream `node.pressure`."""
    conditions = []
    for kind, (status, changed_at) in transitions.items():
        reason, message = TEXTS[kind][0 if status == "True" else 1]
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": rfc3339(changed_at),
            }
        )
    return NodePressure(conditions=tuple(conditions))


def read_transitions(saved: Any) -> dict[str, tuple[str, float]]:
    """Return the transitions by condition that an earlier process saved, without anything else."""
    transitions = {}
    for kind, entry in saved.items() if isinstance(saved, dict) else ():
        match entry:
            case [str(status), int() | float() as at] if kind in PRESSURE_CONDITIONS and not isinstance(at, bool):
                transitions[kind] = (status, float(at))
    return transitions
