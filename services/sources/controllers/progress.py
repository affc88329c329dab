"""Reports that sources makes progress, and lets the cluster remove what no pod refers to any more."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from bus.interface import Bus
from services.sources.controllers.cluster import Cluster
from shared.time.clock import Clock

LOOP = "sources"
TURN_SECONDS = 5.0  # between two turns of an idle process
STUCK_SECONDS = 10.0  # on one piece of work, such as a read of a disk that does not answer


class Source(Protocol):
    """A source of pods whose progress is reported."""

    @property
    def busy_since(self) -> float | None:
        """Return since when (CLOCK_MONOTONIC seconds) the source has been busy; None = it is not."""
        ...


class Progress:
    """Reports progress while no source is stuck."""

    def __init__(self, bus: Bus, clock: Clock, sources: Sequence[Source], cluster: Cluster | None) -> None:
        self._bus, self._clock, self._sources, self._cluster = bus, clock, sources, cluster

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            since = [source.busy_since for source in self._sources]
            if all(moment is None or self._clock.monotonic() - moment < STUCK_SECONDS for moment in since):
                self._bus.progress(LOOP)
            if self._cluster is not None:
                self._cluster.sweep()
            await asyncio.sleep(TURN_SECONDS)
