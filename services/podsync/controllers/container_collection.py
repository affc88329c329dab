"""Removes dead containers beyond those that each pod removes itself: every minute by the limits of the node, and all of
finished pods before a pod is evicted for a full filesystem (node.md 5.4, 6.2)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from bus.messages.event import KubeEvent
from services.frame.launch import Context
from services.podsync.core.machine import PodSync
from services.podsync.core.pod.events import Event, GarbageFound
from services.podsync.core.sync.container_garbage import GarbageLimits, garbage

log = logging.getLogger(__name__)

COLLECT_SECONDS = 60.0
MAX_REMOVAL_SECONDS = 10.0  # of the wait for the removal under pressure
MAX_SHOWN_ERRORS = 3


class ContainerCollection:
    """Finds dead containers and gives them to the core, which removes them. `handle` takes events for the core;
    `record` records an Event of the node."""

    def __init__(
        self,
        context: Context,
        core: PodSync,
        handle: Callable[[Event], None],
        record: Callable[[KubeEvent], object],
    ) -> None:
        config, self._clock = context.config, context.clock
        self._core, self._handle, self._record = core, handle, record
        self._node_name = config.node_name
        self._limits = GarbageLimits(
            minimum_age=config.minimum_container_ttl,
            per_container=config.maximum_dead_containers_per_container,
            total=config.maximum_dead_containers,
        )
        self._pod_changed = asyncio.Event()

    async def run(self) -> None:
        """Collect every minute until cancelled."""
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            self.collect()

    def collect(self) -> None:
        """Begin to remove what exceeds the limits, and report what could not be removed before."""
        errors = {tracked.retry.removal_error for tracked in self._core.tracked.values()} - {""}
        if errors:
            text = "; ".join(sorted(errors)[:MAX_SHOWN_ERRORS])
            log.warning("dead containers cannot be removed: %s", text)
            self._record(
                KubeEvent(type="Warning", reason="ContainerGCFailed", message=text, kind="Node", name=self._node_name)
            )
        self._find(pressed=False)

    async def remove_all(self) -> None:
        """Remove all dead containers of finished pods. Return when they are gone, at the latest after 10 s."""
        dead = self._find(pressed=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_REMOVAL_SECONDS):
                while self._count_left(dead):
                    self._pod_changed.clear()
                    await self._pod_changed.wait()
        if left := self._count_left(dead):
            log.warning("dead containers of %d pods are still there after %d s", left, MAX_REMOVAL_SECONDS)

    def pods_changed(self) -> None:
        """Check again whether the containers are gone: the runtime's containers may have changed."""
        self._pod_changed.set()

    def _find(self, *, pressed: bool) -> Mapping[str, frozenset[str]]:
        dead = garbage(self._core.tracked.values(), self._limits, self._clock.wall(), pressed=pressed)
        if dead:
            log.info("removing %d dead containers of %d pods", sum(map(len, dead.values())), len(dead))
            cause = "a filesystem is full" if pressed else "there are more dead containers than the limits permit"
            self._handle(GarbageFound(containers=dead, cause=cause))
        return dead

    def _count_left(self, dead: Mapping[str, frozenset[str]]) -> int:
        """Return how many of these pods still have one of these containers."""
        tracked = self._core.tracked
        return sum(
            uid in tracked and not ids.isdisjoint(container.id for container in tracked[uid].instances)
            for uid, ids in dead.items()
        )
