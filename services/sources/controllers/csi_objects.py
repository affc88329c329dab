"""Reads the objects that CSI volumes depend on: CSIDrivers by a watch that begins with the first request,
VolumeAttachments and the Secrets that a PersistentVolume names from the API server at each request (volumes.md 14)."""

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.listed_objects import ListedObjects
from services.sources.controllers.live_read import live_read
from services.sources.core.api_objects import metadata_text
from shared.kube import paths

DRIVER, ATTACHMENT, SECRET = "CSIDriver", "VolumeAttachment", "VolumeSecret"
CSI_KINDS = (DRIVER, ATTACHMENT, SECRET)


class CsiObjects:
    """Answers requests for these objects, and publishes the versions of all CSIDrivers in `objects.changed` once one
    was requested."""

    def __init__(self, api: ApiServer, changed: OwnedStream[ChangedObject]) -> None:
        self._api, self._changed = api, changed
        self._drivers = ListedObjects(api, "CSI drivers", paths.CSI_DRIVERS, on_change=self._publish)
        self._published: set[str] = set()  # names

    async def get(self, request: GetObject) -> FoundObject:
        """Return the object, or why there is none."""
        if request.kind == DRIVER:
            return await self._drivers.get("csidriver.storage.k8s.io", request.name)
        path = f"{paths.VOLUME_ATTACHMENTS}/{request.name}"
        if request.kind == SECRET:
            path = f"{paths.referenced('Secret', request.namespace)}/{request.name}"
        return await live_read(self._api, self._api.clients.objects, path, may_lag=True)

    async def close(self) -> None:
        """Stop the watch."""
        await self._drivers.close()

    def _publish(self) -> None:
        versions = {metadata_text(driver, "name"): driver for driver in self._drivers.objects.values()}
        for name in self._published | versions.keys():
            version = metadata_text(versions.get(name), "resourceVersion")
            self._changed.put(f"{DRIVER}//{name}", ChangedObject(resource_version=version), "watched")
        self._published |= versions.keys()
