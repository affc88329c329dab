"""Reads Secrets and ConfigMaps that pods of this node name by the configured strategy, and publishes their versions."""

import asyncio
from collections.abc import Callable
from itertools import islice

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.bounded_objects import BoundedObjects
from services.sources.controllers.fetched_objects import FetchedObjects, Refreshing
from services.sources.controllers.node_watch import NodeWatch
from services.sources.controllers.object_store import ObjectStore, not_registered
from services.sources.controllers.watched_objects import WatchedObjects
from services.sources.core.desired_pods import MergeChange, PodDesired, PodRemoved
from services.sources.core.fetched_object import time_to_live
from services.sources.core.reference_counts import ReferenceCounts
from shared.config.effective import EffectiveConfig
from shared.kube.rate_share import rate_share
from shared.podspec.references import MAX_REFERENCES, Reference, referenced_objects

KINDS = ("Secret", "ConfigMap")
# An object that is not watched, but shown in volumes, is read again each period. It is read more rarely where the
# Node's annotation sets a longer one, or where there are so many that the reads would take more than this share of the
# rate limit of sources: 1 400 objects at 30 requests a second are each read again within 94 s.
REFRESH_SECONDS = 30.0
REFRESH_SHARE = 0.5  # of the rate limit of sources
MAX_FIRST_VERSIONS_SECONDS = 10.0  # to wait for the first version of an object


class ReferencedObjects:
    """Answers requests for these objects, and publishes only their versions in `objects.changed`, never a value."""

    def __init__(
        self, config: EffectiveConfig, api: ApiServer, stream: OwnedStream[ChangedObject], node: NodeWatch
    ) -> None:
        self._stream = stream
        self.on_change: Callable[[Reference], None] = lambda _: None  # called when the API server sent an object
        self._counts = ReferenceCounts()
        self._awaited: set[Reference] | None = None  # before the stream is complete; None = not all pods were passed
        self._overdue: asyncio.TimerHandle | None = None
        self._store: ObjectStore
        match config.change_detection_strategy:
            case "Get":
                self._store = FetchedObjects(api, self._changed, lambda: 0.0, self._counts.pods)
            case "Cache":
                self._store = FetchedObjects(api, self._changed, lambda: time_to_live(node.node), self._counts.pods)
            case _:
                idle_after, is_shown = max(60.0, 5 * config.sync_frequency), self._counts.is_shown
                watched = WatchedObjects(api, self._changed, self._settled, idle_after=idle_after, is_shown=is_shown)
                fetched = FetchedObjects(
                    api,
                    self._changed,
                    lambda: time_to_live(node.node),
                    self._counts.pods,
                    is_shown=is_shown,
                    refreshing=Refreshing(REFRESH_SHARE * effective_qps(config), REFRESH_SECONDS),
                )
                self._store = BoundedObjects(watched, fetched, lambda: api.clients.objects.shares_watches)

    def on_pod(self, change: MergeChange) -> None:
        """Follow the objects of an API pod whose change is about to be published."""
        match change:
            case PodDesired(desired):
                # A pod that names more is rejected, unless what is too much came with debug containers.
                references = dict(islice(referenced_objects(desired.pod).items(), MAX_REFERENCES))
                new, unneeded = self._counts.register(desired.uid, references)
                for reference in new:
                    self._store.register(reference)
            case PodRemoved(uid):
                unneeded = self._counts.unregister(uid)
            case _:
                return
        self._store.unregister(*unneeded)
        for reference in unneeded:
            self._stream.delete(reference.key, "no pod names it")
            self._settled(reference)

    def note_all_pods(self) -> None:
        """Note that every pod of the API was passed to `on_pod`. The stream is complete once each object that is
        watched at this moment has a version or failed to be read; followers then drop what is missing."""
        if self._awaited is not None:
            return
        known = set(self._stream.keys())
        self._awaited = {
            reference
            for reference in self._counts.references
            if reference.key not in known and self._store.sends_first_version(reference)
        }
        if self._awaited:
            self._overdue = asyncio.get_running_loop().call_later(MAX_FIRST_VERSIONS_SECONDS, self._complete)
        else:
            self._complete()

    async def get(self, kind: str, namespace: str, name: str, *, fresh: bool) -> FoundObject:
        """Return the object, or why there is none, with the kubelet's text."""
        reference = Reference(kind, namespace, name)
        if reference not in self._counts:
            return not_registered(reference)
        return await self._store.get(reference, fresh=fresh)

    def sweep(self) -> None:
        """Close watches that are not used any more; it is called every few seconds."""
        self._store.sweep()

    async def close(self) -> None:
        """Stop every watch."""
        if self._overdue is not None:
            self._overdue.cancel()
        await self._store.close()

    def _changed(self, reference: Reference, version: str) -> None:
        known = self._stream.get(reference.key)
        self._stream.put(reference.key, ChangedObject(resource_version=version), "read from the API server")
        self._settled(reference)
        if known is None or known.resource_version != version:
            self.on_change(reference)

    def _settled(self, reference: Reference) -> None:
        """Note that the stream need not wait for a version of this object any more."""
        if self._awaited and reference in self._awaited:
            self._awaited.discard(reference)
            if not self._awaited:
                self._complete()

    def _complete(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._stream.mark_complete()


def effective_qps(config: EffectiveConfig) -> float:
    """Return how many requests a second the client of sources permits; without a limit, the default."""
    qps, _ = rate_share("sources", config.kube_api_qps, config.kube_api_burst)
    return qps if qps > 0 else rate_share("sources", 50.0, 100)[0]
