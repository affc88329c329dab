"""Takes what pleg observes of the node: evaluates pressure, publishes and saves it."""

from collections.abc import Callable
from typing import Any

from bus.interface import OwnedStream
from bus.messages.pleg import NodeObserved
from bus.messages.podsync import NodePressure
from services.frame.launch import Context
from services.podsync.core.node.pressure import Pressure

_KEY = "pressure"  # of the record


class NodeSignals:
    """Owns `node.pressure`. `save(key, data)` saves a record without waiting for it."""

    def __init__(
        self,
        context: Context,
        pressure: Pressure,
        conditions: OwnedStream[NodePressure],
        save: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._clock, self._pressure = context.clock, pressure
        self._conditions, self._save = conditions, save

    def take(self, observed: NodeObserved) -> tuple[str, ...]:
        """Evaluate the signals; return the conditions that are True."""
        before = dict(self._pressure.transitions)
        evaluated = self._pressure.judge(observed, self._clock.wall())
        self._conditions.put("node", evaluated)
        if self._pressure.transitions != before:
            self._save(_KEY, {kind: list(entry) for kind, entry in self._pressure.transitions.items()})
        return tuple(c["type"] for c in evaluated.conditions if c["status"] == "True")
