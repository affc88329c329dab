"""Reads the usage of pods from the runtime instead of their cgroups (gate PodAndContainerStatsFromCRI, node.md 7.1)."""

import logging
from collections.abc import Sequence

from bus.messages.usage import PodUsage
from services.pleg.adapters.usage_source import UsageSource
from services.pleg.core.reported_usage import reported_pods
from shared.cri.interface import Runtime, RuntimeCallError
from shared.model.runtime import RuntimePod
from shared.time.clock import Clock

log = logging.getLogger(__name__)


class ReportedUsageSource:
    """A `UsageSource` whose pods are those of the runtime's report; all else, and the pods where the runtime has no
    such call, are those of `host`."""

    def __init__(self, host: UsageSource, runtime: Runtime, clock: Clock) -> None:
        self._host, self._runtime, self._clock = host, runtime, clock
        self._warned = False
        self.read_node, self.watch_memory, self.read_cgroups = host.read_node, host.watch_memory, host.read_cgroups
        self.count_files, self.close = host.count_files, host.close

    async def read_pods(self, pods: Sequence[RuntimePod]) -> list[PodUsage]:
        """Read all pods; one without a running container has no usage. Raises RuntimeCallError."""
        now = self._clock.monotonic()
        try:
            stats = await self._runtime.sandbox_stats()
        except RuntimeCallError as error:
            if error.code != "Unimplemented":
                raise
            if not self._warned:
                self._warned = True
                log.warning(
                    "PodAndContainerStatsFromCRI: the runtime has no ListPodSandboxStats: usage of pods is read from "
                    "cgroups (use a newer runtime, or switch the feature gate off)"
                )
            return await self._host.read_pods(pods)
        self._warned = False
        return reported_pods(stats, pods, now)
