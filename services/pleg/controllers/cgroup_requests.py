"""Answers GetCgroups. Simultaneous requests share one reading; without a request nothing is read."""

import asyncio
from collections.abc import Callable

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
        self._last: dict[bool, tuple[float, FoundCgroups]] = {}  # by whether it has those of pods
        self._reading = asyncio.Lock()
        context.bus.answer(GetCgroups, self._answer)

    async def _answer(self, request: GetCgroups) -> FoundCgroups:
        async with self._reading:
            now, last = self._clock.monotonic(), self._last.get(request.pods)
            if last is None or last[0] < now - request.max_age_seconds:
                keys = self._pods.keys() if request.pods else ()
                pods = [pod for pod in map(self._pods.get, keys) if pod is not None]
                last = now, await self._source.read_cgroups(pods, self._mountpoints())
                self._last[request.pods] = last
            return last[1]
