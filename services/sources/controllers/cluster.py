"""Runs everything that sources reads from the API server on a node in a cluster, and answers requests from it."""

import asyncio

from bus.interface import Bus, OwnedStream
from bus.messages.sources import (
    ChangedObject,
    FoundObject,
    FoundServices,
    GetObject,
    GetServices,
    MirrorPod,
    NodeObject,
)
from bus.stream import EventRecorder
from services.sources.adapters.clients import Clients
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.cluster_pods import ClusterPods
from services.sources.controllers.csi_objects import CSI_KINDS, CsiObjects
from services.sources.controllers.desired_set import DesiredSet
from services.sources.controllers.listed_objects import ListedObjects, ServiceReads
from services.sources.controllers.live_read import live_read
from services.sources.controllers.node_config_map import CONFIG_MAP, NodeConfigMap
from services.sources.controllers.node_watch import NodeWatch
from services.sources.controllers.offline_pods import OfflineRecordOfPods
from services.sources.controllers.pod_certificate_requests import REQUEST, PodCertificateRequests
from services.sources.controllers.referenced_objects import KINDS, ReferencedObjects
from services.sources.controllers.troubles import Troubles
from services.sources.controllers.trust_bundles import TRUST_KINDS, TrustBundles
from services.sources.controllers.volume_claims import CLAIM_KINDS, VolumeClaims
from services.sources.core.desired_pods import MergeChange
from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled
from shared.kube import paths
from shared.time.clock import Clock


class Cluster:
    """Reads from the API server while `run` runs, and answers requests."""

    def __init__(
        self,
        config: EffectiveConfig,
        clients: Clients,
        bus: Bus,
        clock: Clock,
        desired: DesiredSet,
        troubles: Troubles,
        events: EventRecorder,
        *,
        node: OwnedStream[NodeObject],
        mirrors: OwnedStream[MirrorPod],
        changed: OwnedStream[ChangedObject],
    ) -> None:
        self._config, self._clients = config, clients
        streams_lists = enabled(config.feature_gates, "WatchListClient")
        self._api = ApiServer(clients, bus, clock, may_stream_lists=streams_lists)
        self._node = NodeWatch(self._api, node, config.node_name, prompt=config.offline_pods is not None)
        self._services = ServiceReads(self._api)
        self._runtime_classes = ListedObjects(self._api, "runtime classes", paths.RUNTIME_CLASSES)
        self._objects = ReferencedObjects(config, self._api, changed, self._node)
        self._claims = VolumeClaims(config, self._api, changed)
        self._csi = CsiObjects(self._api, changed)
        self._trust_bundles = TrustBundles(self._api, changed)
        self._certificate_requests = PodCertificateRequests(self._api, changed, config.node_name)
        self._node_config_map = NodeConfigMap(self._api, changed)
        self._offline: OfflineRecordOfPods | None = None
        if config.offline_pods is not None:
            self._offline = OfflineRecordOfPods(
                config,
                config.offline_pods,
                self._api,
                troubles,
                events,
                node=lambda: self._node.node,
                pods=lambda: self._pods.listed,
                services=self._services.get,
                read=self._find_object,
            )
            self._objects.on_change = self._offline.object_changed
        self._pods = ClusterPods(
            config,
            self._api,
            desired,
            mirrors,
            troubles,
            before=self._on_pod,
            on_complete=self._on_all_pods,
            offline=self._offline,
            restore_node=self._node.restore,
        )

    async def run(self) -> None:
        """Read until cancelled. It ends with an error when a part of it does."""
        try:
            async with asyncio.TaskGroup() as parts:
                parts.create_task(self._node.run(), name="node")
                parts.create_task(self._services.listed.run(), name="services")
                parts.create_task(self._pods.run(self._node.synced), name="cluster-pods")
                if self._offline is not None:
                    parts.create_task(self._offline.run(), name="offline-pods")
        finally:
            for part in (
                self._objects,
                self._claims,
                self._csi,
                self._trust_bundles,
                self._certificate_requests,
                self._node_config_map,
                self._runtime_classes,
                self._clients,
            ):
                await part.close()

    @property
    def busy_since(self) -> float | None:
        """Return since when (CLOCK_MONOTONIC seconds) a merge of pods has been under way; None = there is none."""
        return self._pods.busy_since

    def sweep(self) -> None:
        """Close watches that are not used any more; it is called every few seconds."""
        self._objects.sweep()

    async def get_object(self, request: GetObject) -> FoundObject:
        """Answer GetObject; while pods run from the record, from it."""
        return await (self._find_object(request) if self._offline is None else self._offline.answer(request))

    async def _find_object(self, request: GetObject) -> FoundObject:
        if request.kind in KINDS:
            return await self._objects.get(request.kind, request.namespace, request.name, fresh=request.fresh)
        if request.kind in CLAIM_KINDS:
            return await self._claims.get(request.kind, request.namespace, request.name, fresh=request.fresh)
        if request.kind in CSI_KINDS:
            return await self._csi.get(request)
        if request.kind in TRUST_KINDS:
            return await self._trust_bundles.get(request)
        if request.kind == REQUEST:
            return await self._certificate_requests.get(request)
        if request.kind == CONFIG_MAP and self._config.dynamic_config_dir:
            return await self._node_config_map.get(request, self._node.node)
        if request.kind == "RuntimeClass":
            if request.fresh:
                return await live_read(self._api, self._clients.objects, f"{paths.RUNTIME_CLASSES}/{request.name}")
            return await self._runtime_classes.get("runtimeclass.node.k8s.io", request.name)
        if request.kind == "ServiceAccount":
            path = paths.service_account(request.namespace, request.name)
            return await live_read(self._api, self._clients.objects, path, may_lag=True)
        if request.kind == "ResourceClaim":
            path = paths.resource_claim(request.namespace, request.name)
            return await live_read(self._api, self._clients.objects, path, may_lag=True)
        if request.kind != "Node":
            return FoundObject(object=None, error=f"objects of kind {request.kind!r} are not read for other services")
        if request.name != self._config.node_name:
            return FoundObject(object=None, error=f"only node {self._config.node_name} is read, not {request.name!r}")
        if request.fresh:
            return await live_read(self._api, self._clients.node, paths.node(request.name))
        return self._node.get()

    def _on_pod(self, change: MergeChange) -> None:
        """Follow the objects that the pods of the API server name."""
        self._objects.on_pod(change)
        self._claims.on_pod(change)

    def _on_all_pods(self) -> None:
        """Note that all pods of the API server are published."""
        self._node.relax()
        self._objects.note_all_pods()

    async def get_services(self, request: GetServices) -> FoundServices:
        """Answer GetServices; until the API server has listed them, from the record, as far as it goes."""
        found = self._services.get(request)
        return found if found.synced or self._offline is None else self._offline.services(request) or found
