"""Status at work: judges the node, logs events, and runs the parts that write to the API server, where there is one."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from bus.event_recorder import EventRecorder
from bus.messages.event import KubeEvent
from bus.messages.streams import SERVICES, events_of
from services.frame.generation import supervisor_generation, supervisor_process
from services.frame.launch import Context
from services.frame.refused_credentials import RefusedCredentials
from services.status.adapters.agent_record import AgentRecord
from services.status.adapters.clients import Clients
from services.status.adapters.host import Host, ThisHost
from services.status.controllers.event_streams import follow_events
from services.status.controllers.events import EventSink
from services.status.controllers.lease import Lease
from services.status.controllers.node import Node
from services.status.controllers.node_conditions import NodeConditionEvaluator
from services.status.controllers.node_events import NodeEvents
from services.status.controllers.pods import Pods
from services.status.controllers.reviews import Reviews
from services.status.controllers.systemd import Systemd
from services.status.core.event_log import EventLog
from shared.checkpoint import Checkpoint
from shared.config.effective import EffectiveConfig
from shared.kube.client import KubeClient, kube_client
from shared.timestamps import rfc3339_micro

log = logging.getLogger(__name__)

OVERLAP = 60.0  # seconds before the start of which events are still logged: the life before may have been dead by then
RESTART_DELAY_SECONDS = 1.0  # from the failure of a task until it is started again
HEALTHY_AFTER_SECONDS = 60.0  # a restarted task that runs for so long is no longer reported
NO_LIMIT = -1
REQUEST_TIMEOUT_SECONDS = 60.0  # the default limit of the API server itself


def build(context: Context) -> "Status":
    """The service for `services.frame.launch`."""
    refused = RefusedCredentials(context.bus)
    clients = clients_of(context.config, refused) if context.config.joins_cluster else None
    return Status(context, clients, generation=supervisor_generation())


def clients_of(config: EffectiveConfig, refused: Callable[[int], None]) -> Clients:
    """The clients of a cluster member, none of them connected yet. `refused` takes the version of credentials that got
    a 401."""
    run_dir, patience = config.run_dir, min(config.node_status_update_frequency, config.node_lease_duration)

    def client(qps: float, burst: int, timeout: float = REQUEST_TIMEOUT_SECONDS) -> KubeClient:
        return kube_client(run_dir, qps=qps, burst=burst, timeout=timeout, refused=refused)

    kube = client(config.kube_api_qps, config.kube_api_burst)
    reviews = client(config.kube_api_qps, config.kube_api_burst)
    return Clients(
        heartbeat=client(NO_LIMIT, 0, patience),
        kube=kube,
        tokens=kube.behind(),
        reviews=reviews,
        token_reviews=reviews.behind(),
        events=client(config.event_record_qps, config.event_burst),
    )


class Status:
    """The wiring. `clients` None = alone: what would be written is echoed and logged."""

    def __init__(
        self,
        context: Context,
        clients: Clients | None = None,
        *,
        host: Host | None = None,
        generation: str = "",
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._config, self._bus, self._clock = context.config, context.bus, context.clock
        self._clients = clients
        self._recorder = EventRecorder(self._bus.own(events_of("status")), self._clock)
        self._event_log = EventLog(since=rfc3339_micro(self._clock.wall() - OVERLAP))
        self._sink: EventSink | None = None
        for service in SERVICES:
            if service != "status":  # our own are taken as they are recorded
                follow_events(self._bus, service, self._take_event)
        place = Path("status")
        records = Checkpoint(Path(self._config.root_dir) / place, Path(self._config.run_dir) / place)
        self.node_conditions = judgement = NodeConditionEvaluator(context, records, self._record_node_event)
        reviews = Reviews(context, clients)
        self._parts: dict[str, Callable[[], Awaitable[None]]] = {"node conditions": judgement.run}
        systemd = Systemd(context, supervisor_process())
        if systemd.is_waited_for:
            self._parts["watchdog"] = systemd.run
        if clients is None:
            return
        pods = Pods(context, clients)
        lease = Lease(context, clients, chance=chance)
        agent = AgentRecord(records, generation)
        node = Node(
            context,
            clients,
            judgement,
            agent,
            NodeEvents(agent, self._record_node_event),
            host or ThisHost(),
            on_uid=lease.owned_by,
            chance=chance,
        )
        run_dir, name = Path(self._config.run_dir), self._config.node_name
        self._sink = EventSink(clients.events, self._clock, name, run_dir, chance=chance)
        self._parts |= {"lease": lease.run, "node": node.run, "pods": pods.run, "reviews": reviews.run}
        self._parts["events"] = self._sink.run

    async def run(self) -> None:
        """Run every part until cancelled; one that fails is run again and disturbs no other."""
        try:
            async with asyncio.TaskGroup() as running:
                for name, run in self._parts.items():
                    running.create_task(self._keep(name, run), name=f"status {name}")
        finally:
            if self._clients is not None:
                await self._clients.close()

    async def _keep(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        trouble = f"part {name}"
        clearing: asyncio.TimerHandle | None = None
        while True:
            try:
                await run()
                line = "ended by itself"
            except Exception as error:
                log.exception("status: %s failed and is run again in %g s", name, RESTART_DELAY_SECONDS)
                line = f"failed: {type(error).__name__}"
            if clearing is not None:
                clearing.cancel()
            self._bus.trouble(trouble, f"{name} {line}; the log has more")
            clearing = asyncio.get_running_loop().call_later(HEALTHY_AFTER_SECONDS, self._bus.trouble, trouble, None)
            await asyncio.sleep(RESTART_DELAY_SECONDS)

    def _take_event(self, writer: str, key: str, event: KubeEvent, *, is_news: bool) -> None:
        line = self._event_log.line(writer, key, event, is_news=is_news)
        if line is not None:
            log.log(logging.INFO if event.type == "Normal" else logging.WARNING, "Event occurred: %s", line)
        if self._sink is not None:
            self._sink.offer(writer, key, event, is_news=is_news)

    def _record_node_event(self, reason: str, message: str, kind: str = "Normal") -> None:
        event = KubeEvent(type=kind, reason=reason, message=message, kind="Node", name=self._config.node_name)
        self._take_event("status", reason, self._recorder.record(event), is_news=True)
