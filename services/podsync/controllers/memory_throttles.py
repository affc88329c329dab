"""Takes memory.high from running containers where the configuration in force throttles none: the feature gate MemoryQoS
was switched off, or Kubernetes 1.37 has no memoryThrottlingFactor, which 1.36 had (node.md 4.7). What others have set,
such as an NRI plugin, stays.
The runtime is asked to, because it would write its own value again with any other change of the container.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from services.podsync.adapters.cgroups import cgroup_reads
from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.core.cgroups.memory_qos import takes_throttles_back
from services.podsync.core.cgroups.pod_cgroup import pod_cgroup_name
from services.podsync.core.cri.container_resources import earlier_throttle
from shared.cri.interface import Runtime, RuntimeCallError
from shared.model.objects import Object
from shared.model.runtime import Container

log = logging.getLogger(__name__)

LOOP_SECONDS = 60.0
_UNTHROTTLED = {"unified": {"memory.high": "max"}}


class MemoryThrottles:
    """Looks once at each container. `running` returns the pod and the instance of each container that may run."""

    def __init__(
        self, cgroups: PodCgroups, runtime: Runtime, running: Callable[[], Iterable[tuple[Object, Container]]]
    ) -> None:
        self._cgroups, self._runtime, self._running = cgroups, runtime, running
        self._done: set[str] = set()  # ids of running containers without a throttle of an earlier configuration

    async def run(self, all_known: asyncio.Event) -> None:
        """Look each minute until cancelled, and at once when `all_known` is set, which says that sources and runtime
        have listed all they have. Return where there can be no such throttles."""
        while takes_throttles_back(self._cgroups.facts):
            known = all_known.is_set()  # a pod that becomes known during the look is not part of it
            await self.take_back()
            if known:
                await asyncio.sleep(LOOP_SECONDS)
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(all_known.wait(), LOOP_SECONDS)

    async def take_back(self) -> None:
        """Write memory.high of each running container that has it from an earlier configuration back to max; what fails
        is for the next time."""
        running = {instance.id: (pod, instance.name) for pod, instance in self._running()}
        self._done &= running.keys()
        for container_id in running.keys() - self._done:
            try:
                await self._take_back(*running[container_id], container_id)
            except RuntimeCallError as error:
                log.warning("memory.high of container %s stays, trying again in a minute: %s", container_id, error)
            else:
                self._done.add(container_id)

    async def _take_back(self, pod: Object, name: str, container_id: str) -> None:
        earlier = earlier_throttle(pod, name, self._cgroups.facts)
        if earlier == "max":
            return
        await self._cgroups.driver()  # from which the names of cgroups follow
        cgroup, hierarchies = pod_cgroup_name(pod, self._cgroups.facts), self._cgroups.hierarchies
        if earlier in await asyncio.to_thread(cgroup_reads.read_memory_high, hierarchies, cgroup, container_id):
            log.info("taking memory.high of an earlier configuration from container %s", container_id)
            await self._runtime.update_container_resources(container_id, _UNTHROTTLED)
