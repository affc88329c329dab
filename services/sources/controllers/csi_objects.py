"""Reads what CSI volumes rest on: CSIDrivers by a watch that begins with the first request, VolumeAttachments and the
Secrets that a PersistentVolume names from the API server at each request (volumes.md 14)."""

import asyncio
import contextlib

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.listed_objects import FIRST_SYNC, ListedObjects
from services.sources.controllers.live_read import live_read
from services.sources.core.api_objects import metadata_text
from shared.kube import paths

DRIVER, ATTACHMENT, SECRET = "CSIDriver", "VolumeAttachment", "VolumeSecret"
CSI_KINDS = (DRIVER, ATTACHMENT, SECRET)


class CsiObjects:
    """Publishes the versions of all CSIDrivers in `objects.changed` once one was requested."""

    def __init__(self, api: ApiServer, changed: OwnedStream[ChangedObject]) -> None:
        self._api, self._changed = api, changed
        self._drivers = ListedObjects(api, "CSI drivers", paths.CSI_DRIVERS, on_change=self._publish)
        self._running: asyncio.Task[None] | None = None
        self._published: set[str] = set()  # names

    async def get(self, request: GetObject) -> FoundObject:
        """Return the object, or why there is none."""
        if request.kind == DRIVER:
            return await self._driver(request.name)
        path = f"{paths.VOLUME_ATTACHMENTS}/{request.name}"
        if request.kind == SECRET:
            path = f"{paths.referenced('Secret', request.namespace)}/{request.name}"
        return await live_read(self._api, self._api.clients.objects, path, may_lag=True)

    async def close(self) -> None:
        """Stop the watch."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _driver(self, name: str) -> FoundObject:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._drivers.run(), name="csi-drivers")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SYNC):
                await self._drivers.synced.wait()
        if not self._drivers.synced.is_set():
            error = "failed to sync csidriver cache: timed out waiting for the condition"
            return FoundObject(object=None, error=error)
        found = self._drivers.objects.get(f"/{name}")
        if found is None:
            return FoundObject(object=None, not_found=True, error=f'csidriver.storage.k8s.io "{name}" not found')
        return FoundObject(object=found)

    def _publish(self) -> None:
        versions = {metadata_text(each, "name"): each for each in self._drivers.objects.values()}
        for name in self._published | versions.keys():
            version = metadata_text(versions.get(name), "resourceVersion")
            self._changed.put(f"{DRIVER}//{name}", ChangedObject(resource_version=version), "watched")
        self._published |= versions.keys()
