"""Reads the PodCertificateRequests of this node, by a watch that begins with the first request (volumes.md 10.3)."""

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.listed_objects import ListedObjects
from services.sources.core.api_objects import metadata_text
from shared.kube import paths

REQUEST = "PodCertificateRequest"


class PodCertificateRequests:
    """Answers requests for PodCertificateRequests, and publishes their versions in `objects.changed` once one was
    requested."""

    def __init__(self, api: ApiServer, changed: OwnedStream[ChangedObject], node: str) -> None:
        self._changed = changed
        path, selector = paths.POD_CERTIFICATE_REQUESTS, f"spec.nodeName={node}"
        self._requests = ListedObjects(api, "pod certificate requests", path, selector, on_change=self._publish)
        self._published: set[str] = set()  # keys

    async def get(self, request: GetObject) -> FoundObject:
        """Return the request, or why there is none."""
        resource = "podcertificaterequest.certificates.k8s.io"
        return await self._requests.get(resource, request.name, request.namespace)

    async def close(self) -> None:
        """Stop the watch."""
        await self._requests.close()

    def _publish(self) -> None:
        known = self._requests.objects.items()
        versions = {f"{REQUEST}/{name}": metadata_text(found, "resourceVersion") for name, found in known}
        for key, version in versions.items():
            self._changed.put(key, ChangedObject(resource_version=version), "watched")
        for key in self._published - versions.keys():
            self._changed.delete(key, "deleted")
        self._published = set(versions)
