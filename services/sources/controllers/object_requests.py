"""Answers requests for objects of the API server; on a node that runs alone, for those that were applied to it."""

from bus.interface import Bus
from bus.messages.sources import FoundObject, FoundServices, GetObject, GetServices
from services.sources.controllers.applied_objects import AppliedObjects
from services.sources.controllers.cluster import Cluster
from services.sources.core.applied_data import KINDS

STANDALONE = "not supported due to running kubelet in standalone mode"


class ObjectRequests:
    """Answers GetObject and GetServices. `cluster` None = the node runs alone, with the `applied` ConfigMaps and
    Secrets."""

    def __init__(self, bus: Bus, cluster: Cluster | None, applied: AppliedObjects | None = None) -> None:
        self._cluster, self._applied = cluster, applied
        bus.answer(GetObject, self._get_object)
        bus.answer(GetServices, self._get_services)

    async def _get_object(self, request: GetObject) -> FoundObject:
        if self._applied is not None and request.kind in KINDS:
            return self._applied.get(request)
        if self._cluster is None:
            return FoundObject(object=None, error=STANDALONE)
        return await self._cluster.get_object(request)

    async def _get_services(self, request: GetServices) -> FoundServices:
        if self._cluster is None:
            return FoundServices(synced=True)
        return await self._cluster.get_services(request)
