"""Builds the parts of sources and connects them: the sources of pods, the streams and the answers to requests."""

import asyncio
from pathlib import Path
from typing import Protocol

from bus.messages.streams import NODE_OBJECT, OBJECTS_CHANGED, PODS_API_STATUS, PODS_DESIRED, PODS_MIRRORS, events_of
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.frame.refused_credentials import RefusedCredentials
from services.sources.adapters.applied_files import AppliedFiles
from services.sources.adapters.clients import Clients
from services.sources.controllers.applied_objects import AppliedObjects
from services.sources.controllers.apply_endpoint import ApplyEndpoint
from services.sources.controllers.cluster import Cluster
from services.sources.controllers.desired_set import DesiredSet
from services.sources.controllers.object_requests import ObjectRequests
from services.sources.controllers.offline_pods import remove_records
from services.sources.controllers.progress import Progress
from services.sources.controllers.static_pods import StaticPods
from services.sources.controllers.troubles import Troubles
from services.sources.controllers.url_pods import UrlPods
from shared.agent.apply_api import DIRECTORY
from shared.kube.client import kube_client
from shared.kube.rate_share import rate_share

API_TIMEOUT_SECONDS = 30.0  # for one request, where the caller sets no limit of its own


def build(context: Context) -> "Sources":
    """Return the service for `services.frame.launch`."""
    config = context.config
    if not config.joins_cluster:
        return Sources(context, None)

    refused = RefusedCredentials(context.bus)

    qps, burst = rate_share("sources", config.kube_api_qps, config.kube_api_burst)
    # The caller decides when to repeat a request: a reflector waits for the time in a 429, and backs off.
    node = kube_client(
        config.run_dir,
        qps=qps,
        burst=burst,
        timeout=API_TIMEOUT_SECONDS,
        clock=context.clock,
        repeats=0,
        refused=refused,
        metrics=context.metrics,
        release=context.config.emulated_version,
        tracer=context.tracer,
    )
    return Sources(context, Clients(node=node, objects=node.behind(shares_connections=True)))


class Part(Protocol):
    """A part of sources that runs until cancelled."""

    async def run(self) -> None: ...


class Sources:
    """The service sources: the only owner of `pods.desired`, and the only reader of the API server. `clients` None =
    the node runs alone."""

    def __init__(self, context: Context, clients: Clients | None) -> None:
        config, bus, clock = context.config, context.bus, context.clock
        self._config = config
        events = EventRecorder(bus.own(events_of("sources")), clock)
        node, mirrors = bus.own(NODE_OBJECT), bus.own(PODS_MIRRORS)
        changed = bus.own(OBJECTS_CHANGED)
        self._troubles = troubles = Troubles(bus)
        applied = None
        if clients is None:
            applied = AppliedObjects(str(Path(config.root_dir) / DIRECTORY), changed)
        present = {
            "file": bool(config.static_pod_path) or applied is not None,
            "http": bool(config.static_pod_url),
            "api": clients is not None,
        }
        configured = [source for source, there in present.items() if there]
        desired = DesiredSet(bus.own(PODS_DESIRED), bus.own(PODS_API_STATUS), events, clock, configured, context.tracer)
        static = StaticPods(config, clock, desired, events, troubles, applied) if present["file"] else None
        url = UrlPods(config, clock, desired, events, troubles) if present["http"] else None
        cluster: Cluster | None = None
        if clients is not None:
            cluster = Cluster(
                config, clients, bus, clock, desired, troubles, events, node=node, mirrors=mirrors, changed=changed
            )
        ObjectRequests(bus, cluster, applied)
        sources = [source for source in (static, url, cluster) if source is not None]
        self._parts: list[Part] = [Progress(bus, clock, sources, cluster), *sources]
        if static is not None and applied is not None and not config.run_once:
            store = AppliedFiles(Path(applied.directory))
            self._parts.append(ApplyEndpoint(store, config.run_dir, troubles, static.make_pod))

    async def run(self) -> None:
        """Publish the pods of the sources now and at every change. An error of one part ends all of them."""
        if self._config.offline_pods is None:
            await remove_records(self._config, self._troubles)
        async with asyncio.TaskGroup() as running:
            for part in self._parts:
                running.create_task(part.run())
