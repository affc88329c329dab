"""Reads the usage of pods from the runtime instead of their cgroups (gate PodAndContainerStatsFromCRI, node.md 7.1)."""

import asyncio
from collections.abc import Sequence

from bus.messages.usage import PodUsage
from services.pleg.adapters.usage_source import UsageSource
from services.pleg.core.reported_usage import reported_pods
from shared.cri.cgroups_instead import CgroupsInstead
from shared.cri.interface import Runtime, RuntimeCallError
from shared.model.runtime import RuntimePod
from shared.time.clock import Clock

RUNTIME_SECONDS = 2.0  # for the runtime's answer: an eviction waits for it


class ReportedUsageSource:
    """A `UsageSource` whose pods are those of the runtime's report; all else, and the pods where the runtime has no
    such call or hangs in it, are those of `host`."""

    def __init__(self, host: UsageSource, runtime: Runtime, clock: Clock) -> None:
        self._host, self._runtime, self._clock = host, runtime, clock
        self._cgroups = CgroupsInstead("usage of pods")
        self.read_node, self.watch_memory, self.read_cgroups = host.read_node, host.watch_memory, host.read_cgroups
        self.count_files, self.close = host.count_files, host.close

    async def read_pods(self, pods: Sequence[RuntimePod]) -> list[PodUsage]:
        """Read all pods; one without a running container has no usage. Raises RuntimeCallError."""
        now = self._clock.monotonic()
        try:
            async with asyncio.timeout(RUNTIME_SECONDS):
                stats = await self._runtime.sandbox_stats()
        except TimeoutError:
            self._cgroups.warn(f"did not answer ListPodSandboxStats within {RUNTIME_SECONDS:g} s")
            return await self._host.read_pods(pods)
        except RuntimeCallError as error:
            if error.code != "Unimplemented":
                raise
            self._cgroups.warn("has no ListPodSandboxStats")
            return await self._host.read_pods(pods)
        self._cgroups.answered()
        return reported_pods(stats, pods, now)
