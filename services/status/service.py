"""Builds status: node conditions and events, and the tasks that write to the API server, where there is one."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from services.frame.generation import started_after_boot, supervisor_generation, supervisor_process
from services.frame.launch import Context
from services.frame.refused_credentials import RefusedCredentials
from services.frame.restarted import restarted
from services.status.adapters.agent_record import AgentRecord
from services.status.adapters.clients import Clients
from services.status.adapters.host import Host, LocalHost
from services.status.adapters.outage_gate import gate_clients
from services.status.controllers.claim_statuses import ClaimStatuses
from services.status.controllers.csi_node import CsiNodeReconciler
from services.status.controllers.event_intake import EventIntake
from services.status.controllers.event_sink import EventSink
from services.status.controllers.lease import Lease
from services.status.controllers.node import Node
from services.status.controllers.node_conditions import NodeConditionEvaluator
from services.status.controllers.node_events import NodeEvents
from services.status.controllers.node_startup import NodeStartup
from services.status.controllers.pods import Pods
from services.status.controllers.resource_slices import ResourceSlices
from services.status.controllers.reviews import Reviews
from services.status.controllers.shutdown_lock import ShutdownLock
from services.status.controllers.systemd import Systemd
from shared.config.effective import EffectiveConfig
from shared.files.checkpoint import Checkpoint
from shared.kube.client import kube_client
from shared.kube.rate_share import rate_share
from shared.kube.request_queue import Urgency
from shared.metrics.registry import Registry
from shared.model.shutdown_groups import configured_groups
from shared.tracing.tracer import Tracer
from shared.version import is_since

NO_LIMIT = -1
REQUEST_TIMEOUT_SECONDS = 60.0  # the default limit of the API server itself


def build(context: Context) -> "Status":
    """Return the service; on a node that runs alone it has no clients."""
    refused = RefusedCredentials(context.bus)
    clients = (
        clients_of(context.config, refused, context.metrics, context.tracer) if context.config.joins_cluster else None
    )
    return Status(context, clients, generation=supervisor_generation())


def clients_of(
    config: EffectiveConfig, refused: Callable[[int], None], metrics: Registry, tracer: Tracer | None = None
) -> Clients:
    """Return the clients of a cluster member, none of them connected yet. `refused` receives the version of credentials
    that a 401 answered."""
    run_dir, timeout = config.run_dir, min(config.node_status_update_frequency, config.node_lease_duration)
    client = partial(
        kube_client, run_dir, refused=refused, metrics=metrics, tracer=tracer, release=config.emulated_version
    )
    qps, burst = rate_share("status", config.kube_api_qps, config.kube_api_burst)
    kube = client(qps=qps, burst=burst, timeout=REQUEST_TIMEOUT_SECONDS)
    events = config.event_record_qps
    if events == 0 and is_since(config.emulated_version, "1.37"):  # before, 0 is the client library's own 5
        events = NO_LIMIT
    return Clients(
        heartbeat=client(qps=NO_LIMIT, burst=0, timeout=timeout),
        kube=kube,
        tokens=kube.behind(),
        reviews=kube.behind(Urgency.THIRD),
        token_reviews=kube.behind(Urgency.FOURTH),
        events=client(qps=events, burst=config.event_burst, timeout=REQUEST_TIMEOUT_SECONDS),
    )


class Status:
    """The service status. `clients` None = the node runs alone: conditions and Events are only logged. `system_bus`:
    address of the bus that logind is on, None = the system's."""

    def __init__(
        self,
        context: Context,
        clients: Clients | None = None,
        *,
        host: Host | None = None,
        generation: str = "",
        chance: Callable[[], float] = random.random,
        system_bus: str | None = None,
    ) -> None:
        self._config, self._bus, self._clock = context.config, context.bus, context.clock
        self._clients = clients = None if clients is None else gate_clients(clients)
        sink: EventSink | None = None
        if clients is not None:
            run_dir = Path(self._config.run_dir)
            sink = EventSink(clients.events, self._clock, self._config.node_name, run_dir, chance=chance)
        events = EventIntake(context, sink)
        records = Checkpoint(Path(self._config.root_dir, "status"), Path(self._config.run_dir, "status"))
        self.node_conditions = conditions = NodeConditionEvaluator(context, records, events.record_node_event)
        reviews = Reviews(context, clients)
        ClaimStatuses(context, clients)
        self._parts: dict[str, Callable[[], Awaitable[None]]] = {"node conditions": conditions.run}
        systemd = Systemd(context, supervisor_process())
        if systemd.is_waited_for:
            self._parts["watchdog"] = systemd.run
        self._are_written: list[Callable[[], bool]] = []
        groups = configured_groups(
            self._config.shutdown_grace_period,
            self._config.shutdown_grace_period_critical_pods,
            self._config.shutdown_grace_period_by_pod_priority,
        )
        if groups:
            self._parts["shutdown lock"] = ShutdownLock(context, groups, self._is_written, system_bus).run
        if clients is None or sink is None:
            return
        context.resumption.subscribe_work(clients.drop_connections)
        pods = Pods(context, clients)
        lease = Lease(context, clients, chance=chance)
        agent = AgentRecord(records, generation)
        csi_node = CsiNodeReconciler(context, clients, agent)
        slices = ResourceSlices(context, clients, chance=chance)

        def owned_by(uid: str) -> None:
            lease.owned_by(uid)
            csi_node.owned_by(uid)

        node = Node(
            context,
            clients,
            conditions,
            agent,
            NodeEvents(agent, events.record_node_event),
            NodeStartup(context.metrics, self._clock, agent, started_after_boot(generation)),
            host or LocalHost(Path(self._config.root_dir)),
            on_uid=owned_by,
            chance=chance,
        )
        if reviews.offline is not None:
            reviews.offline.is_refused = lambda: lease.is_refused
            self._parts["offline tokens"] = reviews.offline.run
        self._are_written += [lambda: node.is_written, lambda: pods.is_written]
        self._parts |= {"lease": lease.run, "node": node.run, "pods": pods.run}
        self._parts |= {"events": sink.run, "CSINode": csi_node.run, "ResourceSlices": slices.run}

    def _is_written(self) -> bool:
        """Return whether the API server, where there is one, has what this process knows of node and pods."""
        return all(is_written() for is_written in self._are_written)

    async def run(self) -> None:
        """Run every task until cancelled. A task that fails is started again and disturbs no other one."""
        try:
            async with asyncio.TaskGroup() as running:
                for name, run in self._parts.items():
                    running.create_task(restarted(self._bus, name, run), name=f"status {name}")
        finally:
            if self._clients is not None:
                await self._clients.close()
