"""Evaluates, saves and publishes the node's conditions, from facts, pressure and beats.

It works in the same way without an API server; `services.status.controllers.node` writes the conditions there.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from bus.messages.beat import Beat
from bus.messages.streams import NODE_OBSERVED, NODE_PRESSURE, NODE_SHUTDOWN, SERVICES
from services.frame.launch import Context
from services.status.core.node_conditions import (
    Condition,
    is_change,
    is_condition,
    joined,
    ready_condition,
    same_but_for,
    transitions,
    with_api_conditions,
    with_changes,
)
from services.status.core.ready import (
    STOPPED_SECONDS,
    LastBeat,
    NotReady,
    ReadyInputs,
    is_silent,
    message,
    not_ready_reasons,
    reportable,
    turned_at,
)
from shared.files.checkpoint import Checkpoint
from shared.time.timestamps import rfc3339

log = logging.getLogger(__name__)

LOOP = "status"
TURN_SECONDS = 1.0  # silence is noticed at this interval when not even a beat arrives
NODE = "node"
BOOTSTRAP = "bootstrap"
BOOTSTRAP_IS_SILENT = (
    "bootstrap has sent no beat for 30 s: configuration, certificates and API credentials are not renewed meanwhile "
    "(see bootstrap.log)"
)


class NodeConditionEvaluator:
    """Keeps the conditions of the node. `record(reason, message)` records a Normal event of the node."""

    def __init__(self, context: Context, records: Checkpoint, record: Callable[[str, str], None]) -> None:
        self.verdict: tuple[Condition, ...] = ()  # the present evaluation, also while reports are missing
        self._config, self._bus, self._clock = context.config, context.bus, context.clock
        self._records, self._record = records, record
        self._observed = self._bus.follow(NODE_OBSERVED, self._on_node_fact)
        self._pressure = self._bus.follow(NODE_PRESSURE, self._on_node_fact)
        self._shutdown = self._bus.follow(NODE_SHUTDOWN, self._on_node_fact)
        self._bus.on_beat(self._on_beat)
        expected = {"sources", "podsync", "volume"} | ({"server"} if self._config.enable_server else set())
        self._processes = tuple(service for service in SERVICES if service in expected)
        self._last_beats: dict[str, LastBeat] = {}
        self._pleg_active_at: float | None = None
        self._runtime_good_at: float | None = None
        self._awake_since = self._ran_at = self._clock.monotonic()
        self._conditions: tuple[Condition, ...] = ()
        self._changes: tuple[Condition, ...] = ()  # shown by `bulkhead explain node`; nothing depends on it
        self._decided: tuple[Condition, ...] = ()
        self._published_at = float("-inf")
        self._bootstrap_is_silent = False
        self._is_ready = False  # the last evaluation found no reason why the node is not Ready
        self._evaluated_at = float("-inf")
        self._loaded = False
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions that this process published, () = none yet."""
        return self._decided

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the status of a condition has changed, and at the first publication."""
        self._listeners.append(listener)

    def adopt(self, conditions: object) -> None:
        """Use the API server's conditions as the baseline: their transition times count, and so do those conditions
        that are not evaluated yet."""
        self._conditions = with_api_conditions(self._conditions, conditions)
        self._changed.set()

    async def run(self) -> None:
        """Evaluate the node at every fact, once a second, and at every beat while it is not ready; until cancelled."""
        if not self._loaded:
            await self._load()
            self._loaded = True
        while True:
            self._changed.clear()
            self._bus.progress(LOOP)
            await self._evaluate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TURN_SECONDS):  # wait_for may swallow a cancellation before Python 3.12
                    await self._changed.wait()

    def _on_node_fact(self, change: Any) -> None:
        self._changed.set()

    def _on_beat(self, beat: Beat) -> None:
        turned = turned_at(beat.service, beat.progress)
        self._last_beats[beat.service] = LastBeat(received_at=self._ran_now(), turned_at=turned)
        if beat.service == "pleg" and turned is not None:
            self._note_relist(turned)
        # A beat can only improve a condition.
        if not self._is_ready or self._ran_at - self._evaluated_at >= TURN_SECONDS:
            self._changed.set()

    def _ran_now(self) -> float:
        """Return the monotonic time. After a gap, the first beats to come were sent while this process was stopped."""
        now = self._clock.monotonic()
        if now - self._ran_at > STOPPED_SECONDS:
            self._awake_since = now
        self._ran_at = now
        return now

    def _note_relist(self, moment: float) -> None:
        if moment > (self._pleg_active_at or 0.0):
            self._pleg_active_at = moment

    async def _load(self) -> None:
        try:
            records = await asyncio.to_thread(self._records.load_all)
        except OSError as error:
            log.warning("the node's last conditions cannot be read: %s", error)
            return
        match records.get(NODE):
            case {"conditions": [*conditions], **more} if all(is_condition(condition) for condition in conditions):
                self._conditions = with_api_conditions(tuple(conditions), list(self._conditions))
                changes = more.get("changes")
                self._changes = tuple(filter(is_change, changes)) if isinstance(changes, list) else ()

    async def _evaluate(self) -> None:
        now = self._ran_now()
        observed = self._observed.state.get(NODE)
        if observed is not None:
            self._note_relist(observed.last_relist_at)
            if observed.runtime_reachable and observed.runtime_ready:
                self._runtime_good_at = now
        shutdown = self._shutdown.state.get(NODE)
        given = ReadyInputs(
            now=now,
            awake_since=self._awake_since,
            observed=observed,
            runtime_good_at=self._runtime_good_at,
            pleg_active_at=self._pleg_active_at,
            shuts_down=shutdown is not None and shutdown.in_progress,
            last_beats=self._last_beats,
            processes=self._processes,
            max_pods=self._config.max_pods,
        )
        reasons = not_ready_reasons(given)
        self._is_ready, self._evaluated_at = not reasons, now
        self.verdict = self._with_ready(reasons)
        self._report_bootstrap(silent=is_silent(given, BOOTSTRAP))
        reported = reportable(reasons)
        if reported is not None:
            await self._publish(self._with_ready(reported), now)

    def _report_bootstrap(self, *, silent: bool) -> None:
        if silent != self._bootstrap_is_silent:
            self._bootstrap_is_silent = silent
            if silent:
                log.warning("%s", BOOTSTRAP_IS_SILENT)
            self._bus.trouble(BOOTSTRAP, BOOTSTRAP_IS_SILENT if silent else None)

    def _with_ready(self, reasons: list[NotReady]) -> tuple[Condition, ...]:
        wall = rfc3339(self._clock.wall())
        before = next((condition for condition in self._conditions if condition["type"] == "Ready"), None)
        ready = ready_condition(ready=not reasons, message=message(reasons), now=wall, previous=before)
        pressure = self._pressure.state.get(NODE)
        return joined(pressure.conditions if pressure is not None else (), ready, now=wall)

    async def _publish(self, conditions: tuple[Condition, ...], now: float) -> None:
        published = self.conditions
        if published:
            if same_but_for(published, conditions, "lastHeartbeatTime"):
                return
            soon = now - self._published_at < self._config.node_status_update_frequency
            if soon and same_but_for(published, conditions, "lastHeartbeatTime", "message"):
                return  # only a duration in a message has grown
        events = transitions(self._conditions, conditions)
        if not same_but_for(self._conditions, conditions, "lastHeartbeatTime", "message"):
            self._changes = with_changes(self._changes, self._conditions, conditions)
            await self._save(conditions)
        self._conditions, self._published_at = conditions, now
        self._decided = conditions
        for event in events:
            self._record(event.reason, f"Node {self._config.node_name} status is now: {event.reason}")
        if events or not published:
            for listener in self._listeners:
                listener()

    async def _save(self, conditions: tuple[Condition, ...]) -> None:
        try:
            await asyncio.to_thread(
                self._records.save, NODE, {"conditions": list(conditions), "changes": list(self._changes)}
            )
            self._bus.trouble("records", self._records.trouble)
        except OSError as error:
            self._bus.trouble("records", f"the node's conditions cannot be saved: {error}")
