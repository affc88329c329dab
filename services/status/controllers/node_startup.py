"""Measures how long a new Node took from the boot of the machine until it was Ready: kubelet_node_startup_* (node.md
9.1).

Only a start of the agent that created the Node is measured. The moments are in the record of that start, so that a
restart of this process alone shows the same values.
"""

from services.status.adapters.agent_record import AgentRecord
from services.status.core.node_status import is_ready
from shared.metrics.family import gauge
from shared.metrics.registry import Registry
from shared.model.objects import Object
from shared.time.clock import Clock

BEFORE_AGENT = gauge(
    "kubelet_node_startup_pre_kubelet_duration_seconds", "Time from the boot of the machine to the start of the agent."
)
BEFORE_REGISTRATION = gauge(
    "kubelet_node_startup_pre_registration_duration_seconds",
    "Time from the start of the agent until it first tried to create the Node.",
)
REGISTRATION = gauge(
    "kubelet_node_startup_registration_duration_seconds",
    "Time from the first try to create the Node until it was created.",
)
AFTER_REGISTRATION = gauge(
    "kubelet_node_startup_post_registration_duration_seconds",
    "Time from the creation of the Node until the API server had it as Ready.",
)
STARTUP = gauge(
    "kubelet_node_startup_duration_seconds",
    "Time from the boot of the machine until the API server had the new Node as Ready.",
)


class NodeStartup:
    """The metrics of the start. CLOCK_MONOTONIC begins at the boot; `started_at`: the start of the agent on that clock,
    None = not known: then the start of this process counts."""

    def __init__(self, metrics: Registry, clock: Clock, agent: AgentRecord, started_at: float | None) -> None:
        self._clock, self._agent = clock, agent
        self._started_at = clock.monotonic() if started_at is None else started_at
        self._before_agent, self._before_registration = metrics.gauge(BEFORE_AGENT), metrics.gauge(BEFORE_REGISTRATION)
        self._registration, self._after_registration = metrics.gauge(REGISTRATION), metrics.gauge(AFTER_REGISTRATION)
        self._startup = metrics.gauge(STARTUP)

    async def registering(self) -> None:
        """Note the first try to register the Node."""
        if not self._agent.facts.registering_at:
            await self._agent.note(registering_at=self._clock.monotonic())

    async def created(self) -> None:
        """Note that the API server has created the Node."""
        await self._agent.note(created_at=self._clock.monotonic())
        self.show()

    async def written(self, node: Object) -> None:
        """Note when the API server first has the new Node as Ready."""
        facts = self._agent.facts
        if facts.created_at and not facts.ready_at and is_ready(node):
            await self._agent.note(ready_at=self._clock.monotonic())
            self.show()

    def show(self) -> None:
        """Set the metrics from the record."""
        facts = self._agent.facts
        if facts.created_at:
            self._before_agent.set(self._started_at)
            self._before_registration.set(max(0.0, facts.registering_at - self._started_at))
            self._registration.set(facts.created_at - facts.registering_at)
        if facts.ready_at:
            self._after_registration.set(facts.ready_at - facts.created_at)
            self._startup.set(facts.ready_at)
