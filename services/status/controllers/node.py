"""Registers our Node in the API server, and writes its status whenever it changed or is due (node.md 1.1-1.5)."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from bus.interface import Change, Deleted, FollowedStream, Put
from bus.messages.bootstrap import NodeConfigStatus
from bus.messages.sources import NodeObject
from bus.messages.status import VolumesReported
from bus.messages.streams import (
    NODE_CONFIG,
    NODE_IMAGES,
    NODE_OBJECT,
    NODE_OBSERVED,
    NODE_RESOURCES,
    VOLUMES_IN_USE,
    VOLUMES_REPORTED,
)
from bus.messages.volume import VolumesInUse
from services.frame.launch import Context
from services.status.adapters.agent_record import AgentRecord
from services.status.adapters.clients import Clients
from services.status.adapters.host import Host
from services.status.controllers.node_conditions import NODE, NodeConditionEvaluator
from services.status.controllers.node_events import NodeEvents
from services.status.controllers.node_registration import register
from services.status.controllers.node_startup import NodeStartup
from services.status.core.initial_node import reconciled
from services.status.core.node_capacity import amounts_of_reset, given_allocatable
from services.status.core.node_conditions import Condition
from services.status.core.node_facts import HostNetwork, MachineFacts, NodeFacts, NodeIdentity, kubelet_version
from services.status.core.node_patch import is_newer, metadata_differs, node_patch, reported_changes
from services.status.core.node_status import map_at, volumes_in_use, with_status
from services.status.core.report_schedule import MAX_ATTEMPTS, MAX_PROMPT_WRITES, SYNC_JITTER, ReportSchedule
from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled
from shared.config.gates import declared_features
from shared.kube import paths
from shared.kube.client import AGENT_VERSION
from shared.kube.interface import READ_TIMEOUT_SECONDS, ApiError, ApiStatusError
from shared.model import objects
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.time.timestamps import rfc3339

log = logging.getLogger(__name__)

FACTS_TIMEOUT_SECONDS = 5.0  # facts that have not arrived by then are left out of the first status
NETWORK_TIMEOUT_SECONDS = 3.0  # for the resolver; the first status is then written without addresses
RETRY_SECONDS = 10.0  # until the next sync after one whose tries all failed, unless a period is shorter
TROUBLE = "node status"


class Node:
    """Writes our Node. `on_uid` receives the uid of the Node; `chance` returns numbers in [0, 1)."""

    def __init__(
        self,
        context: Context,
        clients: Clients,
        conditions: NodeConditionEvaluator,
        agent: AgentRecord,
        events: NodeEvents,
        startup: NodeStartup,
        host: Host,
        *,
        on_uid: Callable[[str], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._config, self._bus, self._clock = context.config, context.bus, context.clock
        self._client, self._conditions, self._events, self._host = clients.heartbeat, conditions, events, host
        self._agent, self._startup, self._on_uid, self._chance = agent, startup, on_uid, chance
        self._identity = _identity(self._config)
        self._object = self._bus.follow(NODE_OBJECT, self._on_object)
        self._resources = self._bus.follow(NODE_RESOURCES, lambda _: self._now())
        self._observed = self._bus.follow(NODE_OBSERVED, lambda _: self._facts_changed.set())
        self._images = self._bus.follow(NODE_IMAGES)
        self._in_use = self._bus.follow(VOLUMES_IN_USE, lambda _: self._now())
        self._reported = self._bus.own(VOLUMES_REPORTED)
        self._node_config: FollowedStream[NodeConfigStatus] | None = None
        if self._config.dynamic_config_dir:
            self._node_config = self._bus.follow(NODE_CONFIG, lambda _: self._now())
        conditions.on_change(self._now)
        context.resumption.subscribe(lambda _: self._now())
        self._machine = MachineFacts()
        self._network: HostNetwork | None = None
        self._devices: frozenset[str] = frozenset()
        self._had_devices = True  # an agent of this machine had left a checkpoint of devices when this process began
        self._looking: asyncio.Task[HostNetwork] | None = None
        self._schedule = ReportSchedule(self._config.node_status_report_frequency)
        self._uid = ""
        self._reconciled = False  # the Node of this uid was corrected once by this process
        self._is_read = False  # this process itself has read the Node since volumes were published
        self._shown: Object = {}  # the newest Node of the stream
        self._returned: Object | None = None  # the Node that our last write returned, until the stream shows it
        self._residue: Object = {}  # the part of our last write that the API server did not store
        self._has_other_addresses = False  # the newest look has given other addresses, which no status had yet
        self._lacks_config = False  # the API server does not store status.config, which was logged
        self._prompt = 0  # syncs in a row that did not wait for their period
        self._urgent, self._facts_changed = asyncio.Event(), asyncio.Event()
        self._is_compared = False  # the newest comparison with the Node succeeded
        self._trouble: str | None = None
        self._problems: tuple[str, ...] = ()

    @property
    def is_written(self) -> bool:
        """Whether the Node in the API server has what this process knows."""
        return self._is_compared and not self._urgent.is_set()

    async def run(self) -> None:
        """Register and report, until cancelled."""
        try:
            self._machine = await self._host.machine()
            self._had_devices = await self._host.has_device_checkpoint()
            await self._events.started()
            self._startup.show()
            await self._first_facts()
            while True:
                self._is_compared = False
                self._is_compared = await self._sync()
                await self._pause(self._is_compared)
        finally:
            if self._looking is not None:
                self._looking.cancel()

    def _on_object(self, change: Change[NodeObject]) -> None:
        match change:
            case Put(_, value) if is_newer(self._shown, value.node):  # etcd was restored, and our last write is lost
                self._shown, self._returned = value.node, None
                self._now()
                return
            case Put(_, value):
                self._shown = value.node
        match change:
            case Put(_, value) if objects.uid(value.node) != self._uid:
                self._now()
            case Deleted():
                self._returned = None
                self._now()

    def _now(self) -> None:
        self._urgent.set()
        self._facts_changed.set()

    async def _first_facts(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FACTS_TIMEOUT_SECONDS):
                while not (self._resources.state and self._observed.state and self._conditions.conditions):
                    self._facts_changed.clear()
                    await self._facts_changed.wait()

    async def _pause(self, worked: bool) -> None:
        period = self._config.node_status_update_frequency * (1 + SYNC_JITTER * self._chance())
        if self._prompt >= MAX_PROMPT_WRITES:  # a fact changes back and forth: wait for the period
            self._prompt = 0
            await asyncio.sleep(period)
            return
        try:
            async with asyncio.timeout(period if worked else min(RETRY_SECONDS, period)):
                await self._urgent.wait()
            self._prompt += 1
        except TimeoutError:
            self._prompt = 0

    async def _sync(self) -> bool:
        """Report the node, if that is needed; return False if all tries failed."""
        await self._look_at_network()
        self._urgent.clear()  # all other facts are read from here on
        self._devices = await self._host.devices()
        failure: ApiError | None = None
        for attempt in range(MAX_ATTEMPTS):
            try:
                await self._try(fresh=attempt > 0)
                self._note(None)
                return True
            except ApiError as error:
                failure = error
                if attempt:
                    await self._client.drop_connections()
                if not self._registers and isinstance(error, ApiStatusError) and error.not_found:
                    break  # there is no Node, and creating it is not up to us
        remedy = ""
        if self._agent.facts.registered and isinstance(failure, ApiStatusError) and failure.not_found:
            remedy = " (the Node was deleted; restart the agent to register it again)"
        self._note(f"the node status is not written: {failure}{remedy}")
        return False

    @property
    def _registers(self) -> bool:
        """Return whether a missing Node is created: only until it was registered once in this start of the agent, like
        the kubelet."""
        return self._config.register_node and not self._agent.facts.registered

    async def _try(self, *, fresh: bool) -> None:
        if self._registers:
            await self._startup.registering()
        in_use = self._in_use.state.get(NODE)
        # The stream may be behind the last write of an earlier process, so volumes are reported only after a read.
        node = await self._existing(fresh=fresh or (in_use is not None and not self._is_read))
        self._is_read = self._is_read or in_use is not None
        if node is None:
            node = await register(
                self._client, lambda: self._facts(self._conditions.verdict), self._note, self._startup
            )
            await self._agent.note(registered=True)
            self._conditions.adopt(map_at(node, "status").get("conditions"))
        if objects.uid(node) != self._uid:
            self._uid, self._reconciled, self._residue = objects.uid(node), False, {}
            self._on_uid(self._uid)
        facts = self._facts(self._conditions.conditions)
        await self._events.seen(node, facts)
        corrected = node
        if not self._reconciled:
            corrected = reconciled(node, facts)
            if facts.recreated and facts.resources is not None:
                reset = amounts_of_reset(map_at(corrected, "status"), facts.resources)
                facts = replace(facts, given=facts.given | reset)
        wanted, problems = with_status(corrected, facts)
        self._name_problems(problems)
        await self._note_given(corrected, wanted, facts)
        found = reported_changes(node, wanted)
        changed = bool(found) and found != self._residue
        changed = changed or (not self._reconciled and metadata_differs(node, wanted))
        now = self._clock.monotonic()
        if changed or self._schedule.due(now):
            await self._write(node, wanted, facts)
            self._schedule.reported(now, changed=changed, chance=self._chance())
            await self._agent.note(registered=True)
            node = self._returned or node
        await self._startup.written(node)
        self._report_volumes(in_use, node)
        self._reconciled = facts.resources is not None
        if self._reconciled:
            await self._agent.note(first_start=False)

    def _report_volumes(self, in_use: VolumesInUse | None, node: Object) -> None:
        """Publish the volumesInUse of the Node, after it was compared with `in_use`."""
        if in_use is not None:
            reported = VolumesReported(
                generation=in_use.generation,
                volumes=volumes_in_use(node),
                resource_version=str((node.get("metadata") or {}).get("resourceVersion") or ""),
            )
            before = self._reported.get(NODE)
            if before is None or before != replace(reported, resource_version=before.resource_version):
                self._reported.put(NODE, reported, "the node status was compared")

    async def _note_given(self, node: Object, wanted: Object, facts: NodeFacts) -> None:
        """Save which allocatable amounts are set by this agent, before they are written."""
        if facts.resources is not None:
            before, after = map_at(node, "status"), map_at(wanted, "status")
            ours = given_allocatable(before, after, facts.resources, facts.devices, facts.given)
            await self._agent.note(allocatable=ours)

    async def _write(self, node: Object, wanted: Object, facts: NodeFacts) -> None:
        returned = await self._client.patch(paths.node_status(self._config.node_name), node_patch(node, wanted))
        self._returned = returned
        # An older API server drops fields that it does not know; they must not be sent again every ten seconds.
        self._residue = reported_changes(returned, with_status(returned, facts)[0])
        self._conditions.adopt(map_at(returned, "status").get("conditions"))
        if facts.config is not None and "config" not in map_at(returned, "status") and not self._lacks_config:
            self._lacks_config = True
            log.warning("the API server has no dynamic configuration of nodes: the local configuration is used")

    async def _existing(self, *, fresh: bool) -> Object | None:
        """Return the existing Node; None when there is none and it is to be registered. Raises ApiError."""
        if not fresh and not self._object.stale and (known := self._object.state.get(NODE)) is not None:
            if self._returned is not None and is_newer(self._returned, known.node):
                return self._returned
            self._returned = None
            return known.node
        try:
            return await self._client.get(paths.node(self._config.node_name), timeout=READ_TIMEOUT_SECONDS)
        except ApiStatusError as error:
            if error.not_found and self._registers:
                return None
            raise

    def _facts(self, conditions: tuple[Condition, ...]) -> NodeFacts:
        images, in_use = self._images.state.get(NODE), self._in_use.state.get(NODE)
        return NodeFacts(
            identity=self._identity,
            machine=self._machine,
            now=rfc3339(self._clock.wall()),
            network=self._network,
            resources=self._resources.state.get(NODE),
            observed=self._observed.state.get(NODE),
            images=images.images if images is not None else None,
            conditions=conditions,
            devices=self._devices,
            recreated=self._agent.facts.first_start and not self._had_devices,
            volumes_in_use=None if in_use is None else in_use.volumes,
            config=None if self._node_config is None else self._node_config.state.get(NODE),
            given=self._agent.facts.allocatable,
        )

    async def _look_at_network(self) -> None:
        """Begin to read the present addresses. Only the first status waits for them; a later one has those that are
        known, and one with other addresses follows, which begins no look itself: a resolver that gives other addresses
        each time would have a status for each. A resolver that hangs gets only one request at a time."""
        follows, self._has_other_addresses = self._has_other_addresses, False
        if self._looking is not None or follows:
            return
        is_first = self._network is None
        name = "" if any(ip.strip("0.:") for ip in self._config.node_ips) else self._config.node_name
        self._looking = asyncio.create_task(self._host.network(name), name="node addresses")
        self._looking.add_done_callback(self._looked)
        if is_first:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NETWORK_TIMEOUT_SECONDS):
                    await asyncio.wait({self._looking})

    def _looked(self, looking: "asyncio.Task[HostNetwork]") -> None:
        self._looking = None
        if looking.cancelled():
            return
        if (error := looking.exception()) is not None:
            log.error("the addresses of this machine cannot be read, so the Node keeps those known: %r", error)
            return
        before, self._network = self._network, looking.result()
        if before is None or not self._network.has_same_addresses(before):
            self._has_other_addresses = before is not None
            self._now()

    def _name_problems(self, problems: tuple[str, ...]) -> None:
        if problems != self._problems:
            self._problems = problems
            for problem in problems:
                log.warning("a part of the node status stays as it is: %s", problem)

    def _note(self, trouble: str | None) -> None:
        if trouble == self._trouble:
            return
        if trouble is None:
            log.info("the node status is written again")
        else:
            log.warning("%s", trouble)
        self._trouble = trouble
        self._bus.trouble(TROUBLE, trouble)


def _identity(config: EffectiveConfig) -> NodeIdentity:
    return NodeIdentity(
        name=config.node_name,
        kubelet_version=kubelet_version(AGENT_VERSION, config.emulated_version),
        port=config.port,
        labels=config.node_labels,
        taints=config.register_with_taints,
        provider_id=config.provider_id,
        node_ips=config.node_ips,
        external_cloud_provider=config.external_cloud_provider,
        controller_attach_detach=config.controller_attach_detach,
        max_images=config.node_status_max_images,
        declared_features=declared_features(config.feature_gates),
        bind_mount_options=enabled(config.feature_gates, "VolumeBindMountOptions"),
    )
