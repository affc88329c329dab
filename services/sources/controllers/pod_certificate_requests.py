"""Reads the PodCertificateRequests of this node, by a watch that begins with the first request (volumes.md 10.3)."""

import asyncio
import contextlib

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.listed_objects import FIRST_SYNC, ListedObjects
from services.sources.core.api_objects import metadata_text
from shared.kube import paths

REQUEST = "PodCertificateRequest"


class PodCertificateRequests:
    """Publishes their versions in `objects.changed` once one was requested."""

    def __init__(self, api: ApiServer, changed: OwnedStream[ChangedObject], node: str) -> None:
        self._changed = changed
        path, selector = paths.POD_CERTIFICATE_REQUESTS, f"spec.nodeName={node}"
        self._requests = ListedObjects(api, "pod certificate requests", path, selector, on_change=self._publish)
        self._running: asyncio.Task[None] | None = None
        self._published: set[str] = set()  # keys

    async def get(self, request: GetObject) -> FoundObject:
        """Return the request, or why there is none."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._requests.run(), name="pod-certificate-requests")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SYNC):
                await self._requests.synced.wait()
        if not self._requests.synced.is_set():
            error = "failed to sync podcertificaterequest cache: timed out waiting for the condition"
            return FoundObject(object=None, error=error)
        found = self._requests.objects.get(f"{request.namespace}/{request.name}")
        if found is None:
            error = f'podcertificaterequest.certificates.k8s.io "{request.name}" not found'
            return FoundObject(object=None, not_found=True, error=error)
        return FoundObject(object=found)

    async def close(self) -> None:
        """Stop the watch."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _publish(self) -> None:
        versions = {
            f"{REQUEST}/{name}": metadata_text(each, "resourceVersion") for name, each in self._requests.objects.items()
        }
        for key, version in versions.items():
            self._changed.put(key, ChangedObject(resource_version=version), "watched")
        for key in self._published - versions.keys():
            self._changed.delete(key, "deleted")
        self._published = set(versions)
