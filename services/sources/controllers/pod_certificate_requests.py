"""Reads the PodCertificateRequests of this node, by a watch that begins with the first request (volumes.md 10.3)."""

import asyncio

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.listed_objects import ListedObjects
from services.sources.controllers.live_read import find_served
from services.sources.core.api_objects import metadata_text
from shared.kube import paths
from shared.model.frozen_copy import replace

REQUEST = "PodCertificateRequest"


class PodCertificateRequests:
    """Answers requests for PodCertificateRequests, and publishes their versions in `objects.changed` once one was
    requested."""

    def __init__(self, api: ApiServer, changed: OwnedStream[ChangedObject], node: str) -> None:
        self._api, self._changed, self._selector = api, changed, f"spec.nodeName={node}"
        self._requests: ListedObjects | None = None
        self._starting = asyncio.Lock()
        self._published: set[str] = set()  # keys

    async def get(self, request: GetObject) -> FoundObject:
        """Return the request, or why there is none."""
        async with self._starting:
            if self._requests is None:
                versions = paths.POD_CERTIFICATE_VERSIONS
                found = await find_served(self._api, paths.all_pod_certificate_requests, versions, self._selector)
                if not isinstance(found, str):
                    return replace(found, not_found=False)  # that of the collection: nothing is known of the request
                what = "pod certificate requests"
                self._requests = ListedObjects(self._api, what, found, self._selector, on_change=self._publish)
        resource = "podcertificaterequest.certificates.k8s.io"
        return await self._requests.get(resource, request.name, request.namespace)

    async def close(self) -> None:
        """Stop the watch."""
        if self._requests is not None:
            await self._requests.close()

    def _publish(self) -> None:
        assert self._requests is not None
        known = self._requests.objects.items()
        versions = {f"{REQUEST}/{name}": metadata_text(found, "resourceVersion") for name, found in known}
        for key, version in versions.items():
            self._changed.put(key, ChangedObject(resource_version=version), "watched")
        for key in self._published - versions.keys():
            self._changed.delete(key, "deleted")
        self._published = set(versions)
