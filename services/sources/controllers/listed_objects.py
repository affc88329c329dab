"""Small collections of which every object is read: Services for the environment, RuntimeClasses once one is needed."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from bus.messages.sources import FoundObject, FoundServices, GetServices
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.list_watch import ListWatch
from services.sources.core.api_objects import metadata_text, service_addresses, without_managed_fields
from shared.kube import paths
from shared.model.objects import Object

log = logging.getLogger(__name__)

FIRST_SYNC = 1.0  # seconds a read waits for the list


class ListedObjects:
    """A collection by `<namespace>/<name>`, in step with the API server while `run` runs. Of each object only what
    `kept` returns stays in memory. `on_change` is called after each change."""

    def __init__(
        self,
        api: ApiServer,
        what: str,
        path: str,
        selector: str = "",
        kept: Callable[[Object], Object] = without_managed_fields,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.objects: dict[str, Object] = {}
        self._what, self._kept, self._changed = what, kept, on_change
        self._list_watch = ListWatch(
            api=api,
            client=api.clients.objects,
            what=what,
            path=path,
            selector=selector,
            on_list=self._on_list,
            on_change=self._on_change,
            selector_needed=False,
        )
        self.synced = self._list_watch.synced

    async def run(self) -> None:
        """Until cancelled."""
        await self._list_watch.run()

    def _on_list(self, items: list[Any]) -> None:
        named = [item for item in items if metadata_text(item, "name")]
        if len(named) < len(items):
            log.warning("%s: %d objects without a name are left out", self._what, len(items) - len(named))
        self.objects = {_key(item): self._kept(item) for item in named}
        self._changed()

    def _on_change(self, kind: str, item: Any) -> None:
        if not metadata_text(item, "name"):
            log.warning("%s: a change of an object without a name is left out", self._what)
        elif kind == "DELETED":
            self.objects.pop(_key(item), None)
        else:
            self.objects[_key(item)] = self._kept(item)
        self._changed()


class ServiceReads:
    """Answers GetServices."""

    def __init__(self, api: ApiServer) -> None:
        self.listed = ListedObjects(api, "services", paths.SERVICES, "spec.clusterIP!=None", service_addresses)

    def found(self, request: GetServices) -> FoundServices:
        """The Services of the namespace and `default/kubernetes`, in the order of their names (pods.md 6.3)."""
        if not self.listed.synced.is_set():
            return FoundServices(synced=False)
        wanted = (
            service
            for key, service in sorted(self.listed.objects.items())
            if metadata_text(service, "namespace") == request.namespace or key == "default/kubernetes"
        )
        return FoundServices(synced=True, services=tuple(service for service in wanted if _has_cluster_ip(service)))


class RuntimeClassReads:
    """Answers reads of RuntimeClasses; nothing is asked of the API server before the first of them."""

    def __init__(self, api: ApiServer) -> None:
        self._listed = ListedObjects(api, "runtime classes", paths.RUNTIME_CLASSES)
        self._running: asyncio.Task[None] | None = None

    async def get(self, name: str) -> FoundObject:
        """The RuntimeClass; waits a moment for the first list."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._listed.run(), name="runtime-classes")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SYNC):
                await self._listed.synced.wait()
        if not self._listed.synced.is_set():
            error = "failed to sync runtimeclass cache: timed out waiting for the condition"
            return FoundObject(object=None, error=error)
        found = self._listed.objects.get(f"/{name}")
        if found is None:
            return FoundObject(object=None, not_found=True, error=f'runtimeclass.node.k8s.io "{name}" not found')
        return FoundObject(object=found)

    async def close(self) -> None:
        """Stop the watch."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)


def _key(item: Any) -> str:
    return f"{metadata_text(item, 'namespace')}/{metadata_text(item, 'name')}"


def _has_cluster_ip(service: Object) -> bool:
    return service["spec"]["clusterIP"] not in (None, "", "None")
