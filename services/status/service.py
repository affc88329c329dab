"""Status at work: follows what the others say, has it judged, saves, publishes. Decides nothing itself."""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

from bus.event_recorder import EventRecorder
from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.beat import Beat
from bus.messages.event import KubeEvent
from bus.messages.podsync import PodStatus
from bus.messages.status import NodeStatus, StatusWritten
from bus.messages.streams import (
    NODE_CONDITIONS,
    NODE_OBSERVED,
    NODE_STATUS,
    PODS_STATUS,
    SERVICES,
    STATUS_WRITTEN,
    events_of,
)
from services.launch import Context
from services.status.core.event_log import EventLog
from services.status.core.node_conditions import Condition, joined, ready_condition, same_but_for, transitions
from services.status.core.ready import ReadyInputs, Sign, may_be_said, message, not_ready_reasons
from shared.checkpoint import Checkpoint
from shared.timestamps import rfc3339, rfc3339_micro

_log = logging.getLogger(__name__)

LOOP = "status"
TURN = 1.0  # seconds: silence is judged this often when not even a beat comes
RELIST = "relist"  # pleg's progress entry for a successful relist
NODE = "node"
OVERLAP = 60.0  # seconds before the start of which events are still logged: the life before may have been dead by then


def build(context: Context) -> "Status":
    """The service for `services.launch`."""
    return Status(context)


class Status:
    """The one owner of `node.status` and `status.written`."""

    def __init__(self, context: Context) -> None:
        self._config, self._bus, self._clock = context.config, context.bus, context.clock
        self._node_status = self._bus.own(NODE_STATUS)
        self._written = self._bus.own(STATUS_WRITTEN)
        self._events = EventRecorder(self._bus.own(events_of("status")), self._clock)
        self._bus.follow(PODS_STATUS, self._on_pod_status)
        self._observed = self._bus.follow(NODE_OBSERVED, self._on_node_fact)
        self._pressure = self._bus.follow(NODE_CONDITIONS, self._on_node_fact)
        for service in SERVICES:
            if service != "status":  # our own are logged as they are recorded
                self._follow_events(service)
        self._bus.on_beat(self._on_beat)
        place = Path("status")
        self._records = Checkpoint(Path(self._config.root_dir) / place, Path(self._config.run_dir) / place)
        self._event_log = EventLog(since=rfc3339_micro(self._clock.wall() - OVERLAP))
        expected = {"bootstrap", "sources", "podsync", "volume"} | ({"server"} if self._config.enable_server else set())
        self._processes = tuple(service for service in SERVICES if service in expected)
        self._signs: dict[str, Sign] = {}
        self._pleg_active_at: float | None = None
        self._runtime_good_at: float | None = None
        self._started_at = self._clock.monotonic()
        self._conditions: tuple[Condition, ...] = ()
        self._published_at = float("-inf")
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Judge the node at every fact and every beat, until cancelled."""
        if self._config.kubeconfig:
            _log.warning("a kubeconfig is set, but nothing is written to an API server by this version")
        await self._load()
        while True:
            self._changed.clear()
            self._bus.progress(LOOP)
            await self._judge_node()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TURN):  # wait_for may swallow a cancellation before Python 3.12
                    await self._changed.wait()

    def _follow_events(self, writer: str) -> None:
        def on_change(change: Change[KubeEvent]) -> None:
            if isinstance(change, Put):
                self._log_event(writer, change.key, change.value)

        self._bus.follow(events_of(writer), on_change)

    def _log_event(self, writer: str, key: str, event: KubeEvent) -> None:
        line = self._event_log.line(writer, key, event)
        if line is not None:
            _log.log(logging.INFO if event.type == "Normal" else logging.WARNING, "Event occurred: %s", line)

    def _on_pod_status(self, change: Change[PodStatus]) -> None:
        match change:
            case Put(uid, status):
                self._written.put(uid, StatusWritten(uid=uid, version=status.version), "no API server: accepted here")
            case Deleted(uid):
                self._written.delete(uid, "the pod has no status any more")
            case Freshness(complete=True, stale=False):
                self._written.mark_complete()

    def _on_node_fact(self, change: Change[Any]) -> None:
        self._changed.set()

    def _on_beat(self, beat: Beat) -> None:
        now = self._clock.monotonic()
        self._signs[beat.service] = Sign(heard_at=now, turned_at=max(beat.progress.values(), default=None))
        if beat.service == "pleg":
            self._note_relist(beat.progress.get(RELIST, 0.0))
        self._changed.set()

    def _note_relist(self, moment: float) -> None:
        if moment > (self._pleg_active_at or 0.0):
            self._pleg_active_at = moment

    async def _load(self) -> None:
        try:
            records = await asyncio.to_thread(self._records.load_all)
        except OSError as error:
            _log.warning("the node's last conditions cannot be read: %s", error)
            return
        match records.get(NODE):
            case {"conditions": [*conditions]} if all(_is_condition(condition) for condition in conditions):
                self._conditions = tuple(conditions)

    async def _judge_node(self) -> None:
        now = self._clock.monotonic()
        observed = self._observed.state.get(NODE)
        if observed is not None:
            self._note_relist(observed.last_relist_at)
            if observed.runtime_reachable and observed.runtime_ready:
                self._runtime_good_at = now
        given = ReadyInputs(
            now=now,
            started_at=self._started_at,
            observed=observed,
            runtime_good_at=self._runtime_good_at,
            pleg_active_at=self._pleg_active_at,
            signs=self._signs,
            processes=self._processes,
            max_pods=self._config.max_pods,
        )
        reasons = not_ready_reasons(given)
        if not may_be_said(reasons, given):
            return
        wall = rfc3339(self._clock.wall())
        before = next((condition for condition in self._conditions if condition["type"] == "Ready"), None)
        ready = ready_condition(ready=not reasons, message=message(reasons), now=wall, previous=before)
        pressure = self._pressure.state.get(NODE)
        await self._publish(joined(pressure.conditions if pressure is not None else (), ready, now=wall), now)

    async def _publish(self, conditions: tuple[Condition, ...], now: float) -> None:
        first = NODE not in self._node_status.keys()  # noqa: SIM118 (a stream is no mapping)
        if not first:
            if same_but_for(self._conditions, conditions, "lastHeartbeatTime"):
                return
            soon = now - self._published_at < self._config.node_status_update_frequency
            if soon and same_but_for(self._conditions, conditions, "lastHeartbeatTime", "message"):
                return  # only a duration in a text went on
        events = transitions(self._conditions, conditions)
        if not same_but_for(self._conditions, conditions, "lastHeartbeatTime", "message"):
            await self._save(conditions)
        self._conditions, self._published_at = conditions, now
        self._node_status.put(NODE, NodeStatus(conditions=conditions), "conditions changed")
        self._node_status.mark_complete()
        for event in events:
            self._record_node_event(event.reason)

    async def _save(self, conditions: tuple[Condition, ...]) -> None:
        try:
            await asyncio.to_thread(self._records.save, NODE, {"conditions": list(conditions)})
            self._bus.trouble("records", self._records.trouble)
        except OSError as error:
            self._bus.trouble("records", f"the node's conditions cannot be saved: {error}")

    def _record_node_event(self, reason: str) -> None:
        name = self._config.node_name
        event = KubeEvent(
            type="Normal", reason=reason, message=f"Node {name} status is now: {reason}", kind="Node", name=name
        )
        self._log_event("status", reason, self._events.record(event))


def _is_condition(value: Any) -> bool:
    fields = ("type", "status", "reason", "message", "lastTransitionTime")
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in fields)
