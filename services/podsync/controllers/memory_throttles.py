"""Takes memory.high from running containers where the configuration in force throttles none: the feature gate MemoryQoS
was switched off, or Kubernetes 1.37 has no memoryThrottlingFactor, which 1.36 had (node.md 4.7). What others have set,
such as an NRI plugin, stays. What is resized before it is looked at loses its throttle with that (`calls/resizing.py`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from msgspec import Struct

from services.podsync.adapters.cgroups.left_throttles import take_throttle_back
from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.core.cgroups.memory_qos import takes_throttles_back
from services.podsync.core.pod.allocation import Resources
from shared.cri.interface import Runtime, RuntimeCallError
from shared.model.objects import Object
from shared.model.runtime import Container

log = logging.getLogger(__name__)

LOOP_SECONDS = 60.0


class Running(Struct, frozen=True):
    """Has a container that may run. `given`: the resources that it has, None = those of the pod's spec."""

    pod: Object
    instance: Container
    given: Resources | None


class MemoryThrottles:
    """Looks once at each container. `running` returns those that may run."""

    def __init__(self, cgroups: PodCgroups, runtime: Runtime, running: Callable[[], Iterable[Running]]) -> None:
        self._cgroups, self._runtime, self._running = cgroups, runtime, running
        self._done: set[str] = set()  # ids of running containers without a throttle of an earlier configuration

    async def run(self, all_observed: asyncio.Event) -> None:
        """Look each minute until cancelled, and at once when `all_observed` is set, which says that each pod has been
        seen in the runtime. Return where there can be no such throttles."""
        while takes_throttles_back(self._cgroups.facts):
            observed = all_observed.is_set()  # a pod that is seen during the look is not part of it
            await self.take_back()
            if observed:
                await asyncio.sleep(LOOP_SECONDS)
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(all_observed.wait(), LOOP_SECONDS)

    async def take_back(self) -> None:
        """Write memory.high of each running container that has it from an earlier configuration back to max; what fails
        is for the next time."""
        running = {found.instance.id: found for found in self._running()}
        self._done &= running.keys()
        for container_id in running.keys() - self._done:
            try:
                found = running[container_id]
                await take_throttle_back(
                    self._runtime, self._cgroups, found.pod, found.instance.name, container_id, found.given
                )
            except RuntimeCallError as error:
                log.warning("memory.high of container %s stays, trying again in a minute: %s", container_id, error)
            else:
                self._done.add(container_id)
