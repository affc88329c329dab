"""Keeps our CSINode, and what CSI drivers add to our Node: creates it, and writes it when drivers come and go.

It runs as a task of its own, so that the lease and the node's status wait for none of its requests (volumes.md 14.2).
"""

import asyncio
import contextlib
import logging

from bus.interface import Change, Deleted, Put
from bus.messages.streams import PLUGINS_REGISTERED
from bus.messages.volume import RegisteredPlugin
from services.frame.launch import Context
from services.status.adapters.agent_record import AgentRecord
from services.status.adapters.clients import Clients
from services.status.core.csi_node import (
    Drivers,
    collisions,
    is_of_another_node,
    new_csi_node,
    node_patch,
    updated_csi_node,
)
from shared.kube import paths
from shared.kube.interface import READ_TIMEOUT_SECONDS, WRITE_TIMEOUT_SECONDS, ApiError, ApiStatusError
from shared.model import objects
from shared.model.objects import Object
from shared.time.backoff import Backoff

log = logging.getLogger(__name__)

RETRIES = Backoff(initial=0.2, cap=30.0)
TROUBLE = "CSINode"


class CsiNodeReconciler:
    """Writes the CSINode. `owned_by` sets the uid of our Node, without which nothing is written; `agent` must be loaded
    before that."""

    def __init__(self, context: Context, clients: Clients, agent: AgentRecord) -> None:
        self._bus, self._client, self._name = context.bus, clients.kube, context.config.node_name
        self._agent = agent
        self._plugins = self._bus.follow(PLUGINS_REGISTERED, self._on_plugin)
        self._gone: set[str] = set()  # drivers that were seen to be deregistered
        self._uid = ""
        self._changed = asyncio.Event()
        self._trouble: str | None = None

    def owned_by(self, uid: str) -> None:
        """Set the uid that our Node has now."""
        self._uid = uid
        self._changed.set()

    async def run(self) -> None:
        """Write the differences after each change, until cancelled; a request that fails is tried again."""
        failures = 0
        while True:
            self._changed.clear()
            wait: float | None = None
            if self._uid:
                try:
                    self._note(await self._write())
                    failures = 0
                except ApiError as error:
                    failures += 1
                    wait = RETRIES.delay(failures)
                    self._note(f"the CSINode and the CSI drivers of the Node are not written: {error}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    def _on_plugin(self, change: Change[RegisteredPlugin]) -> None:
        match change:
            case Put(_, plugin) if plugin.csi is not None:
                self._gone.discard(plugin.name)
            case Deleted(key) if key.startswith("CSIPlugin/"):
                self._gone.add(key.partition("/")[2])
        self._changed.set()

    async def _write(self) -> str | None:
        """Write what the drivers require into Node and CSINode; return a trouble, or None. Raises ApiError."""
        node = await self._client.get(paths.node(self._name), timeout=READ_TIMEOUT_SECONDS)
        if objects.uid(node) != self._uid:
            return None  # a new Node was registered, and `owned_by` will be called with its uid
        plugins = self._plugins.state.values()
        drivers = {plugin.name: plugin.csi for plugin in plugins if plugin.csi is not None}
        collided = collisions(node, drivers)
        drivers = {name: driver for name, driver in drivers.items() if name not in collided}
        registered = {plugin.name for plugin in plugins if plugin.csi is not None}
        gone = await self._deregistered(registered)
        if patch := node_patch(node, drivers, gone):
            await self._client.patch(paths.node_status(self._name), patch, timeout=WRITE_TIMEOUT_SECONDS)
        await self._write_csi_node(drivers, gone)
        await self._agent.note(csi_drivers=tuple(sorted(set(self._agent.facts.csi_drivers) - gone)))
        lines = (f"CSI driver {name} is not added to the CSINode: {text}" for name, text in collided.items())
        return "; ".join(lines) or None

    async def _deregistered(self, registered: set[str]) -> frozenset[str]:
        """Return the drivers whose entries are to be removed. Registered drivers are saved before they are written, so
        that the entry of a driver that goes while this process is restarted is removed, too."""
        known = set(self._agent.facts.csi_drivers) | registered
        await self._agent.note(csi_drivers=tuple(sorted(known)))
        is_all = self._plugins.complete and not self._plugins.stale
        return frozenset((known if is_all else self._gone) - registered)

    async def _write_csi_node(self, drivers: Drivers, gone: frozenset[str]) -> None:
        path = paths.csi_node(self._name)
        found: Object | None = None
        try:
            found = await self._client.get(path, timeout=READ_TIMEOUT_SECONDS)
        except ApiStatusError as error:
            if not error.not_found:
                raise
        if found is not None and is_of_another_node(found, self._uid):
            log.info("the CSINode belongs to an earlier Node: it is created again")
            options = {"preconditions": {"uid": objects.uid(found)}}
            with contextlib.suppress(ApiStatusError):  # it may be gone, or be another one by now; the create shows it
                await self._client.delete(path, options, timeout=WRITE_TIMEOUT_SECONDS)
            found = None
        if found is None:
            created = new_csi_node(self._name, self._uid, drivers)
            await self._client.create(paths.CSI_NODES, created, timeout=WRITE_TIMEOUT_SECONDS)
        elif (updated := updated_csi_node(found, drivers, gone)) is not None:
            await self._client.update(path, updated, timeout=WRITE_TIMEOUT_SECONDS)

    def _note(self, trouble: str | None) -> None:
        if trouble == self._trouble:
            return
        if trouble is None:
            log.info("the CSINode is written")
        else:
            log.warning("%s", trouble)
        self._trouble = trouble
        self._bus.trouble(TROUBLE, trouble)
