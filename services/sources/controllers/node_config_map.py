"""Reads the ConfigMap that our Node names as its configuration, by a watch of that one object (config.md 4.5)."""

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.listed_objects import ListedObjects
from services.sources.core.api_objects import metadata_text
from shared.kube import paths
from shared.model.fields import dictionary
from shared.model.objects import Object

CONFIG_MAP = "NodeConfigMap"


class NodeConfigMap:
    """Answers requests for the ConfigMap, and publishes its version in `objects.changed`. The watch begins with the
    first request for a ConfigMap, and ends with the first one for another."""

    def __init__(self, api: ApiServer, changed: OwnedStream[ChangedObject]) -> None:
        self._api, self._changed = api, changed
        self._key = ""  # namespace and name
        self._listed: ListedObjects | None = None

    async def get(self, request: GetObject, node: Object | None) -> FoundObject:
        """Return the ConfigMap, or why there is none. Only the one that `node` names is read."""
        key = f"{request.namespace}/{request.name}"
        if key != _named_by(node):
            return FoundObject(object=None, error=f"the Node does not name the ConfigMap {key}")
        listed = await self._watch(key, request)
        if not await listed.sync():
            return FoundObject(object=None, error=f"ConfigMap {key} was not read yet")
        if (found := listed.objects.get(key)) is None:
            return FoundObject(object=None, not_found=True, error=f'configmap "{request.name}" not found')
        return FoundObject(object=found)

    async def close(self) -> None:
        """Stop the watch."""
        if self._listed is not None:
            await self._listed.close()

    async def _watch(self, key: str, request: GetObject) -> ListedObjects:
        """Return the watch of the ConfigMap; it replaces that of another one."""
        if self._listed is None or key != self._key:
            await self.close()
            if self._key:
                self._changed.delete(f"{CONFIG_MAP}/{self._key}", "the Node names another one")
            path, selector = paths.referenced("ConfigMap", request.namespace), f"metadata.name={request.name}"
            self._listed = ListedObjects(self._api, f"ConfigMap {key}", path, selector, on_change=self._publish)
            self._key = key
        return self._listed

    def _publish(self) -> None:
        found = self._listed.objects.get(self._key) if self._listed is not None else None
        version = ChangedObject(resource_version=metadata_text(found, "resourceVersion"))
        self._changed.put(f"{CONFIG_MAP}/{self._key}", version, "watched")


def _named_by(node: Object | None) -> str:
    """Return namespace and name of the ConfigMap that a Node of any shape names; "" = none."""
    source = dictionary(dictionary((node or {}).get("spec")).get("configSource"))
    config_map = source.get("configMap")
    return f"{config_map.get('namespace')}/{config_map.get('name')}" if isinstance(config_map, dict) else ""
