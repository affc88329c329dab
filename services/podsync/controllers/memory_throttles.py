"""Takes memory.high from running containers where the configuration in force throttles none: the feature gate MemoryQoS
was switched off, or Kubernetes 1.37 has no memoryThrottlingFactor, which 1.36 had (node.md 4.7).
The runtime is asked to, because it would write its own value again with any other change of the container.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from services.podsync.adapters.cgroups import cgroup_reads
from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.core.cgroups.memory_qos import takes_throttles_back
from services.podsync.core.cgroups.pod_cgroup import pod_cgroup_name
from shared.cri.interface import Runtime, RuntimeCallError
from shared.model.objects import Object

log = logging.getLogger(__name__)

LOOP_SECONDS = 60.0
_UNTHROTTLED = {"unified": {"memory.high": "max"}}


class MemoryThrottles:
    """Looks once at each container. `running` returns the pod and the id of each container that may run."""

    def __init__(
        self, cgroups: PodCgroups, runtime: Runtime, running: Callable[[], Iterable[tuple[Object, str]]]
    ) -> None:
        self._cgroups, self._runtime, self._running = cgroups, runtime, running
        self._done: set[str] = set()  # ids of running containers without a throttle of an earlier configuration

    async def run(self) -> None:
        """Run until cancelled, where there may be such throttles."""
        while takes_throttles_back(self._cgroups.facts):
            await self.take_back()
            await asyncio.sleep(LOOP_SECONDS)

    async def take_back(self) -> None:
        """Write memory.high of each running container back to max; what fails is for the next time."""
        running = {container_id: pod for pod, container_id in self._running()}
        self._done &= running.keys()
        for container_id in running.keys() - self._done:
            try:
                await self._take_back(running[container_id], container_id)
            except RuntimeCallError as error:
                log.warning("memory.high of container %s stays, trying again in a minute: %s", container_id, error)
            else:
                self._done.add(container_id)

    async def _take_back(self, pod: Object, container_id: str) -> None:
        await self._cgroups.driver()  # from which the names of cgroups follow
        name, hierarchies = pod_cgroup_name(pod, self._cgroups.facts), self._cgroups.hierarchies
        if await asyncio.to_thread(cgroup_reads.is_throttled, hierarchies, name, container_id):
            log.info("taking memory.high of an earlier configuration from container %s", container_id)
            await self._runtime.update_container_resources(container_id, _UNTHROTTLED)
