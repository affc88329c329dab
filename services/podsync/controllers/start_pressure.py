"""Follows how long tasks of the machine wait for a CPU (PSI), and tells the core when another number of pods may start
at once. pleg reads it every 10 s; where the kernel does not tell, the number follows from the CPUs alone.
"""

import os
from collections.abc import Callable

from bus.interface import Bus, Change, Put
from bus.messages.streams import NODE_USAGE
from bus.messages.usage import NodeUsage
from services.podsync.core.pod.events import Event, StartPlacesChanged
from services.podsync.core.start_order.places import start_places


def available_cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


class StartPressure:
    """Calls `handle` for each change of the number of places. `places`: those that the core has now."""

    def __init__(self, bus: Bus, places: int, handle: Callable[[Event], None]) -> None:
        self._places, self._handle = places, handle
        self._cpus = available_cpus()
        bus.follow(NODE_USAGE, self._on_usage)

    def _on_usage(self, change: Change[NodeUsage]) -> None:
        if not isinstance(change, Put):
            return
        pressure = change.value.cgroup.cpu_pressure
        places = start_places(self._cpus, None if pressure is None else pressure.some.avg10)
        if places != self._places:
            self._places = places
            self._handle(StartPlacesChanged(places=places, cause="the pressure on the CPUs changed"))
