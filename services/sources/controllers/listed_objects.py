"""Keeps collections of which every object is read: Services from the start, others from the first request on."""

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

MAX_FIRST_SYNC_SECONDS = 1.0  # for which a request waits for the first list


class ListedObjects:
    """Keeps a collection by `<namespace>/<name>`, in step with the API server while `run` runs or after `sync` was
    called. Of each object only what `kept` returns stays in memory. `on_change` is called after each change."""

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
            kept=kept,
        )
        self.synced = self._list_watch.synced
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """List and watch until cancelled."""
        await self._list_watch.run()

    async def sync(self) -> bool:
        """Begin the watch if it does not run, wait for at most `MAX_FIRST_SYNC_SECONDS`, and return whether the
        collection was listed."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self.run(), name=self._what)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_FIRST_SYNC_SECONDS):
                await self.synced.wait()
        return self.synced.is_set()

    async def get(self, resource: str, name: str, namespace: str = "") -> FoundObject:
        """Return one object, or the kubelet's error. `resource`: as errors name it, such as
        `csidriver.storage.k8s.io`."""
        if not await self.sync():
            kind = resource.partition(".")[0]
            error = f"failed to sync {kind} cache: timed out waiting for the condition"
            return FoundObject(object=None, error=error)
        found = self.objects.get(f"{namespace}/{name}")
        if found is None:
            return FoundObject(object=None, not_found=True, error=f'{resource} "{name}" not found')
        return FoundObject(object=found)

    async def close(self) -> None:
        """Stop the watch that `sync` began."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

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
    """Answers GetServices from a watch of all Services."""

    def __init__(self, api: ApiServer) -> None:
        self.listed = ListedObjects(api, "services", paths.SERVICES, "spec.clusterIP!=None", service_addresses)

    def get(self, request: GetServices) -> FoundServices:
        """Return the Services of the namespace and `default/kubernetes`, in the order of their names (pods.md 6.3)."""
        if not self.listed.synced.is_set():
            return FoundServices(synced=False)
        wanted = (
            service
            for key, service in sorted(self.listed.objects.items())
            if metadata_text(service, "namespace") == request.namespace or key == "default/kubernetes"
        )
        return FoundServices(synced=True, services=tuple(service for service in wanted if _has_cluster_ip(service)))


def _key(item: Any) -> str:
    return f"{metadata_text(item, 'namespace')}/{metadata_text(item, 'name')}"


def _has_cluster_ip(service: Object) -> bool:
    return service["spec"]["clusterIP"] not in (None, "", "None")
