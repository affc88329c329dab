"""Records the events of the node that do not come from its conditions: started, rebooted, cordoned (node.md 1.8)."""

from collections.abc import Callable

from services.status.adapters.agent_record import AgentRecord
from services.status.core.node_facts import NodeFacts
from services.status.core.node_status import is_unschedulable, rebooted
from shared.model.objects import Object


class NodeEvents:
    """Records events of the node by calling `record(reason, message, type)`."""

    def __init__(self, agent: AgentRecord, record: Callable[[str, str, str], None]) -> None:
        self._agent, self._record = agent, record
        self._recorded_boot = ""

    async def started(self) -> None:
        """Load the record of the agent's start, and record the start once under one supervisord."""
        if not await self._agent.load():
            self._record("Starting", "Starting kubelet.", "Normal")
            await self._agent.save()

    async def seen(self, node: Object, facts: NodeFacts) -> None:
        """Compare the Node of the API server with the facts, and record a reboot or a change of spec.unschedulable."""
        message = rebooted(node, facts)
        if message and self._recorded_boot != facts.machine.boot_id:
            self._recorded_boot = facts.machine.boot_id
            self._record("Rebooted", message, "Warning")
        unschedulable = is_unschedulable(node)
        if unschedulable != self._agent.facts.unschedulable:
            reason = "NodeNotSchedulable" if unschedulable else "NodeSchedulable"
            self._record(reason, f"Node {facts.identity.name} status is now: {reason}", "Normal")
            await self._agent.note(unschedulable=unschedulable)
