"""Answers requests for objects of the API server; a node that runs alone has none."""

from bus.interface import Bus
from bus.messages.sources import FoundObject, FoundServices, GetObject, GetServices
from services.sources.controllers.cluster import Cluster

STANDALONE = "not supported due to running kubelet in standalone mode"


class ObjectRequests:
    """`cluster`: None = the node runs alone."""

    def __init__(self, bus: Bus, cluster: Cluster | None) -> None:
        self._cluster = cluster
        bus.answer(GetObject, self._get_object)
        bus.answer(GetServices, self._get_services)

    async def _get_object(self, request: GetObject) -> FoundObject:
        if self._cluster is None:
            return FoundObject(object=None, error=STANDALONE)
        return await self._cluster.get_object(request)

    async def _get_services(self, request: GetServices) -> FoundServices:
        if self._cluster is None:
            return FoundServices(synced=True)
        return await self._cluster.get_services(request)
