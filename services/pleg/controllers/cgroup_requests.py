"""Answers GetCgroups. Simultaneous requests share one reading; without a request nothing is read."""

import asyncio
from collections.abc import Callable
from math import inf

from bus.interface import OwnedStream
from bus.messages.cgroup_details import FoundCgroups, GetCgroups
from services.frame.launch import Context
from services.pleg.adapters.usage_source import UsageSource
from services.pleg.core.mountpoints import Mountpoints
from shared.model.runtime import RuntimePod


class CgroupRequests:
    """Answers the requests. `pods`: those that the runtime has; `mountpoints`: of its images and writable layers."""

    def __init__(
        self,
        context: Context,
        source: UsageSource,
        pods: OwnedStream[RuntimePod],
        *,
        mountpoints: Callable[[], Mountpoints | None],
    ) -> None:
        self._clock, self._source, self._pods, self._mountpoints = context.clock, source, pods, mountpoints
        self._last: tuple[float, FoundCgroups | None] = (-inf, None)
        self._reading = asyncio.Lock()
        context.bus.answer(GetCgroups, self._answer)

    async def _answer(self, request: GetCgroups) -> FoundCgroups:
        async with self._reading:
            read_at, cgroups = self._last
            now = self._clock.monotonic()
            if cgroups is None or read_at < now - request.max_age_seconds:
                pods = [pod for pod in map(self._pods.get, self._pods.keys()) if pod is not None]
                cgroups = await self._source.read_cgroups(pods, self._mountpoints())
                self._last = now, cgroups
            return cgroups
