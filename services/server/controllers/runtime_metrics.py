"""Reads from the runtime what /metrics/cadvisor shows of pods and containers (gate PodAndContainerStatsFromCRI)."""

import asyncio
from collections.abc import Callable, Iterable
from math import inf

from services.server.core.metrics.runtime_metrics import RuntimeFamily, runtime_families, unknown_metrics
from shared.cri.cgroups_instead import CgroupsInstead
from shared.cri.interface import Runtime, RuntimeCallError
from shared.cri.usage import MetricDescriptor
from shared.model.runtime import RuntimePod
from shared.time.clock import Clock

MAX_AGE_SECONDS = 2.0  # of an answer of the runtime that is shown again


class RuntimeMetrics:
    """Keeps the descriptors of the runtime's metrics, which are read again when it has others. Simultaneous requests
    share one reading. `pods`: those that the runtime has."""

    def __init__(self, runtime: Runtime, clock: Clock, pods: Callable[[], Iterable[RuntimePod]]) -> None:
        self._runtime, self._clock, self._pods = runtime, clock, pods
        self._descriptors: dict[str, MetricDescriptor] = {}
        self._last: dict[str, RuntimeFamily] | None = None
        self._read_at = -inf
        self._reading = asyncio.Lock()
        self._cgroups = CgroupsInstead("/metrics/cadvisor")

    async def read(self) -> dict[str, RuntimeFamily] | None:
        """Return the metrics by name; None = the runtime has no such calls. Raises RuntimeCallError."""
        async with self._reading:
            now = self._clock.monotonic()
            if self._read_at < now - MAX_AGE_SECONDS:
                self._last, self._read_at = await self._read(), now
            return self._last

    async def _read(self) -> dict[str, RuntimeFamily] | None:
        try:
            metrics = await self._runtime.sandbox_metrics()
            if unknown_metrics(self._descriptors, metrics):
                described = await self._runtime.metric_descriptors()
                self._descriptors = {descriptor.name: descriptor for descriptor in described}
        except RuntimeCallError as error:
            if error.code != "Unimplemented":
                raise
            self._cgroups.warn(f"has no {error.method}")
            return None
        self._cgroups.answered()
        return runtime_families(self._descriptors, metrics, self._pods())
