"""Events of the node that are no matter of its conditions: started, rebooted, cordoned (reference node.md 1.8).

A restart of this process alone is no start of the node agent: what was said under the same supervisord is not repeated.
"""

import asyncio
import logging
from collections.abc import Callable

from services.status.core.node_facts import NodeFacts
from services.status.core.node_status import is_unschedulable, rebooted
from shared.checkpoint import Checkpoint
from shared.model.objects import Object

_log = logging.getLogger(__name__)

AGENT = "agent"


class NodeEvents:
    """`generation`: which supervisord started us, "" = not known; `record(reason, message, type)`."""

    def __init__(self, records: Checkpoint, generation: str, record: Callable[[str, str, str], None]) -> None:
        self._records, self._generation, self._record = records, generation, record
        self._unschedulable = False
        self._boot_said = ""

    async def started(self) -> None:
        """Record the start of the agent, once for all lives under one supervisord."""
        try:
            before = (await asyncio.to_thread(self._records.load_all)).get(AGENT, {})
        except OSError as error:
            _log.warning("what was last said of the agent's start cannot be read: %s", error)
            before = {}
        if self._generation and before.get("generation") == self._generation:
            self._unschedulable = before.get("unschedulable") is True
            return
        self._record("Starting", "Starting kubelet.", "Normal")
        await self._save()

    async def seen(self, node: Object, facts: NodeFacts) -> None:
        """Record what the Node as the API server has it tells against the facts."""
        message = rebooted(node, facts)
        if message and self._boot_said != facts.machine.boot_id:
            self._boot_said = facts.machine.boot_id
            self._record("Rebooted", message, "Warning")
        if is_unschedulable(node) != self._unschedulable:
            self._unschedulable = not self._unschedulable
            reason = "NodeNotSchedulable" if self._unschedulable else "NodeSchedulable"
            self._record(reason, f"Node {facts.identity.name} status is now: {reason}", "Normal")
            await self._save()

    async def _save(self) -> None:
        record = {"generation": self._generation, "unschedulable": self._unschedulable}
        try:
            await asyncio.to_thread(self._records.save, AGENT, record)
        except OSError as error:
            _log.warning("what was said of the agent's start cannot be saved: %s", error)
