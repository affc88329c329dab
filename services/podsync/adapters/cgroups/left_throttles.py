"""Takes from a container memory.high of an earlier configuration, or of its resources before a resize (node.md 4.7).

Decides nothing. The runtime is asked to, because it would write its own value again with any other change of the
container. A kill before or after the request leaves nothing to undo: the value in the kernel is read again.
"""

import logging

from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.core.cri.container_resources import left_throttles
from services.podsync.core.pod.allocation import Resources
from shared.cri.interface import Runtime
from shared.model.objects import Object

log = logging.getLogger(__name__)

_UNTHROTTLED = {"unified": {"memory.high": "max"}}


async def take_throttle_back(
    runtime: Runtime, cgroups: PodCgroups, pod: Object, name: str, container_id: str, given: Resources | None
) -> None:
    """Write memory.high of this container of the pod back to max, where it is one of `left_throttles`. `given`: the
    resources that the container has, None = those of the pod's spec. Raises RuntimeCallError."""
    left = left_throttles(pod, name, given, cgroups.facts)
    if left and left & await cgroups.memory_high(pod, container_id):
        log.info("taking memory.high from container %s, which is throttled no more", container_id)
        await runtime.update_container_resources(container_id, _UNTHROTTLED)
