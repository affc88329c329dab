"""Deletes the ResourceSlices of drivers of dynamic resource allocation that have left this node, so that the scheduler
assigns their devices to no pod (node.md 4.16).

It runs as a task of its own, so that the lease and the node's status wait for none of its requests.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable

from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.streams import PLUGINS_REGISTERED
from bus.messages.volume import RegisteredPlugin
from services.frame.launch import Context
from services.status.adapters.clients import Clients
from services.status.core.slice_removals import Removal, SliceRemovals
from shared.kube import paths
from shared.kube.interface import WRITE_TIMEOUT_SECONDS, ApiError, ApiStatusError
from shared.time.backoff import Backoff

log = logging.getLogger(__name__)

RETRIES = Backoff(initial=1.0, cap=300.0)
JITTER = 0.2  # share of a delay that is added to it at most
TROUBLE = "ResourceSlices"
_KIND = "DRAPlugin"


class ResourceSlices:
    """Deletes the slices. `run` is the loop; `chance` returns numbers in [0, 1)."""

    def __init__(self, context: Context, clients: Clients, *, chance: Callable[[], float] = random.random) -> None:
        self._bus, self._clock, self._node = context.bus, context.clock, context.config.node_name
        self._client, self._chance = clients.kube, chance
        self._removals = SliceRemovals()
        self._changed = asyncio.Event()
        self._bus.follow(PLUGINS_REGISTERED, self._on_plugin)

    async def run(self) -> None:
        """Delete what is due until cancelled; a request that fails is tried again."""
        failures = 0
        while True:
            self._changed.clear()
            began = self._clock.monotonic()
            error = await self._delete()
            failures = failures + 1 if error else 0
            # What has become due since `began` may have been too late for this turn, and is due at once.
            wait = max(0.0, self._removals.next_due(began) - self._clock.monotonic())
            if error:
                wait = min(wait, RETRIES.delay(failures, JITTER * self._chance()))
            # A node without drivers has no slices, unless its last driver left while no process was there.
            self._bus.trouble(TROUBLE, error if error and self._removals.has_drivers else None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait == math.inf else wait):
                    await self._changed.wait()

    def _on_plugin(self, change: Change[RegisteredPlugin]) -> None:
        now = self._clock.monotonic()
        match change:
            case Put(_, plugin) if plugin.type == _KIND and plugin.connected:
                self._removals.registered(plugin.name)
            case Put(_, plugin) if plugin.type == _KIND:
                self._removals.deregistered(plugin.name, now)
            case Deleted(key) if key.startswith(f"{_KIND}/"):
                self._removals.deregistered(key.partition("/")[2], now)
            case Freshness(complete, stale):
                self._removals.set_known(complete and not stale, now)
            case _:
                return
        self._changed.set()

    async def _delete(self) -> str:
        """Delete what is due; return why something is not deleted, "" = everything is."""
        error = ""
        tried: set[str] = set()
        while (removal := self._next_due(tried)) is not None:
            tried.add(removal.driver)
            began = self._clock.monotonic()
            try:
                await self._delete_slices(removal)
            except ApiError as failure:
                whose = f"of DRA driver {removal.driver}" if removal.driver else "of drivers that are not registered"
                error = f"ResourceSlices {whose} are not deleted: {failure}"
            else:
                self._removals.done(removal, began)
        return error

    def _next_due(self, tried: set[str]) -> Removal | None:
        """Return a removal that is due and was not tried yet. A driver may register during the request before it."""
        due = self._removals.due(self._clock.monotonic())
        return next((removal for removal in due if removal.driver not in tried), None)

    async def _delete_slices(self, removal: Removal) -> None:
        """Raise ApiError. An API server without ResourceSlices has none to delete."""
        query = {"fieldSelector": removal.selector(self._node)}
        try:
            found = await self._client.delete(paths.RESOURCE_SLICES, query=query, timeout=WRITE_TIMEOUT_SECONDS)
        except ApiStatusError as error:
            # One that does not have them forbids them to a node before it looks for them.
            if error.not_found or (error.forbidden and not self._removals.has_drivers):
                return
            raise
        if names := [str(item.get("metadata", {}).get("name")) for item in found.get("items") or ()]:
            whose = f"DRA driver {removal.driver}, which is" if removal.driver else "drivers that are"
            log.info("the ResourceSlices %s of %s not registered are deleted", ", ".join(names), whose)
