"""Sources at work: which sources of pods there are, who owns which stream, who answers. Decides nothing itself."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from bus.event_recorder import EventRecorder
from bus.messages.sources import FoundObject, FoundServices, GetObject, GetServices
from bus.messages.streams import NODE_OBJECT, OBJECTS_CHANGED, PODS_API_STATUS, PODS_DESIRED, PODS_MIRRORS, events_of
from services.frame.launch import Context
from services.frame.refused_credentials import RefusedCredentials
from services.sources.adapters.clients import Clients
from services.sources.controllers.cluster import Cluster
from services.sources.controllers.desired_set import DesiredSet
from services.sources.controllers.static_pods import StaticPods
from services.sources.controllers.troubles import Troubles
from shared.kube.client import kube_client

LOOP = "sources"
TURN = 5.0  # seconds: an idle loop turns this often, so that its progress shows in the beat
STUCK = 10.0  # seconds on one piece of work (a disk that does not answer), and the loop counts as standing still
API_TIMEOUT = 30.0  # seconds for one request, where the caller sets no limit of its own
STANDALONE = "not supported due to running kubelet in standalone mode"


def build(context: Context) -> "Sources":
    """The service for `services.frame.launch`."""
    config = context.config
    if not config.joins_cluster:
        return Sources(context, None)

    refused = RefusedCredentials(context.bus)

    qps, burst = config.kube_api_qps, config.kube_api_burst
    # The caller decides when to repeat a request: a reflector waits for the time in a 429, and backs off.
    node = kube_client(
        config.run_dir,
        qps=qps,
        burst=burst,
        timeout=API_TIMEOUT,
        clock=context.clock,
        attempts=0,
        refused=refused,
        metrics=context.metrics,
    )
    return Sources(context, Clients(node=node, objects=node.beside(qps=qps, burst=burst)))


class Sources:
    """The one owner of `pods.desired`, and the one reader of the API server. `clients`: None = the node runs alone."""

    def __init__(self, context: Context, clients: Clients | None) -> None:
        config, self._bus, self._clock = context.config, context.bus, context.clock
        clock = self._clock
        events = EventRecorder(self._bus.own(events_of("sources")), clock)
        node, mirrors = self._bus.own(NODE_OBJECT), self._bus.own(PODS_MIRRORS)
        changed = self._bus.own(OBJECTS_CHANGED)
        troubles = Troubles(self._bus)
        present = {"file": bool(config.static_pod_path), "api": clients is not None}
        configured = [source for source, there in present.items() if there]
        desired = DesiredSet(self._bus.own(PODS_DESIRED), self._bus.own(PODS_API_STATUS), events, clock, configured)
        self._static: StaticPods | None = None
        if present["file"]:
            self._static = StaticPods(config, clock, desired, events, troubles)
        self._cluster: Cluster | None = None
        if clients is not None:
            self._cluster = Cluster(
                config, clients, self._bus, clock, desired, troubles, node=node, mirrors=mirrors, changed=changed
            )
        self._bus.answer(GetObject, self._get_object)
        self._bus.answer(GetServices, self._get_services)

    async def run(self) -> None:
        """Publish the pods of the sources, now and at every change."""
        parts: list[Coroutine[Any, Any, None]] = [self._turn()]
        parts += [part.run() for part in (self._static, self._cluster) if part is not None]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _turn(self) -> None:
        while True:
            since = [part.busy_since for part in (self._static, self._cluster) if part is not None]
            if all(moment is None or self._clock.monotonic() - moment < STUCK for moment in since):
                self._bus.progress(LOOP)
            if self._cluster is not None:
                self._cluster.sweep()
            await asyncio.sleep(TURN)

    async def _get_object(self, request: GetObject) -> FoundObject:
        if self._cluster is None:
            return FoundObject(object=None, error=STANDALONE)
        return await self._cluster.get_object(request)

    async def _get_services(self, request: GetServices) -> FoundServices:
        if self._cluster is None:
            return FoundServices(synced=True)
        return await self._cluster.get_services(request)
