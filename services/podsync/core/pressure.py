"""The node's pressure conditions, judged from the signals pleg reads (reference node.md 1.7, 5.1-5.3).

Memory and disk are compared with evictionHard; a condition stays for the transition period after its signal has gone.
Nothing is evicted here.
"""

from dataclasses import dataclass, field
from typing import Any

from bus.messages.pleg import NodeObserved
from bus.messages.podsync import NodeConditions
from shared.podspec.quantity import parse_quantity
from shared.timestamps import rfc3339

DEFAULT_THRESHOLDS = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
}
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


@dataclass(kw_only=True)
class Pressure:
    """Conditions over time; `transitions` (condition -> status and wall seconds of its last change) is what is saved.

    `last_seen`: condition -> wall seconds at which its signal was last beyond a threshold.
    """

    thresholds: dict[str, str]
    transition_period: float  # seconds
    transitions: dict[str, tuple[str, float]] = field(default_factory=dict)
    last_seen: dict[str, float] = field(default_factory=dict)

    def judge(self, observed: NodeObserved, now: float) -> NodeConditions:
        """The conditions as they are at `now` (wall seconds)."""
        thresholds = self.thresholds or DEFAULT_THRESHOLDS
        beyond = {
            condition
            for signal, condition, available, capacity in _signals(observed)
            if signal in thresholds and _below(thresholds[signal], available, capacity)
        }
        conditions = []
        for kind, (pressed, relieved) in TEXTS.items():
            if kind in beyond:
                self.last_seen[kind] = now
            held = kind in self.last_seen and now - self.last_seen[kind] < self.transition_period
            status = "True" if kind in beyond or held else "False"
            if self.transitions.get(kind, ("", 0.0))[0] != status:
                self.transitions[kind] = (status, now)
            reason, message = pressed if status == "True" else relieved
            conditions.append(
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": rfc3339(self.transitions[kind][1]),
                }
            )
        return NodeConditions(conditions=tuple(conditions))


def read_transitions(saved: Any) -> dict[str, tuple[str, float]]:
    """The transitions of an earlier life as they were saved; whatever is not one is left out."""
    found = {}
    for kind, entry in saved.items() if isinstance(saved, dict) else ():
        match entry:
            case [str(status), int() | float() as at] if kind in TEXTS and not isinstance(at, bool):
                found[kind] = (status, float(at))
    return found


def _signals(observed: NodeObserved) -> list[tuple[str, str, int, int]]:
    """Signal, the condition it presses, what is available of what capacity; -1 = could not be read."""
    pids = observed.pids_max - observed.pids_running if observed.pids_running >= 0 else -1
    return [
        ("memory.available", "MemoryPressure", observed.memory_available, observed.memory_capacity),
        ("nodefs.available", "DiskPressure", observed.nodefs_available, observed.nodefs_capacity),
        ("nodefs.inodesFree", "DiskPressure", observed.nodefs_inodes_free, observed.nodefs_inodes),
        ("imagefs.available", "DiskPressure", observed.imagefs_available, observed.imagefs_capacity),
        ("pid.available", "PIDPressure", pids, observed.pids_max),
    ]


def _below(threshold: str, available: int, capacity: int) -> bool:
    if available < 0 or capacity <= 0:
        return False
    if threshold.endswith("%"):
        return available < capacity * float(threshold[:-1]) / 100
    return available < parse_quantity(threshold).base()
