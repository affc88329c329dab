"""The node's pressure conditions, judged from the signals pleg reads (node.md 1.7, 5.1-5.3).

Memory and disk are compared with evictionHard; a condition stays for the transition period after its signal has gone.
Nothing is evicted here.
"""

from dataclasses import dataclass, field
from typing import Any

from bus.messages.pleg import NodeObserved, eviction_signals
from bus.messages.podsync import NodePressure
from shared.model.conditions import PRESSURE_CONDITIONS
from shared.model.eviction import SIGNAL_CONDITIONS, threshold_amount
from shared.timestamps import rfc3339

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
    """Conditions over time. `thresholds` is evictionHard: signal -> quantity or percentage; {} = no thresholds.
    `transitions` (condition -> status and wall seconds of its last change) is what is saved.

    `last_seen`: condition -> wall seconds at which its signal was last beyond a threshold.
    """

    thresholds: dict[str, str]
    transition_period: float  # seconds
    transitions: dict[str, tuple[str, float]] = field(default_factory=dict)
    last_seen: dict[str, float] = field(default_factory=dict)

    def judge(self, observed: NodeObserved, now: float) -> NodePressure:
        """The conditions as they are at `now` (wall seconds)."""
        beyond = {
            SIGNAL_CONDITIONS[signal]
            for signal, capacity, available in eviction_signals(observed)
            if signal in self.thresholds and _below(self.thresholds[signal], available, capacity)
        }
        conditions = []
        for kind in PRESSURE_CONDITIONS:
            pressed, relieved = TEXTS[kind]
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
        return NodePressure(conditions=tuple(conditions))


def read_transitions(saved: Any) -> dict[str, tuple[str, float]]:
    """The transitions of an earlier life as they were saved; whatever is not one is left out."""
    found = {}
    for kind, entry in saved.items() if isinstance(saved, dict) else ():
        match entry:
            case [str(status), int() | float() as at] if kind in PRESSURE_CONDITIONS and not isinstance(at, bool):
                found[kind] = (status, float(at))
    return found


def _below(threshold: str, available: int, capacity: int) -> bool:
    return available >= 0 and capacity > 0 and available < threshold_amount(threshold, capacity)
