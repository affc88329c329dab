"""Lists all pods of the runtime: once a period, at once on request, and with back-off while it fails."""

import asyncio
import logging
from collections.abc import Callable

from services.frame.launch import Context
from services.pleg.adapters.waiting import wait_for
from services.pleg.controllers.event_stream import EventReader
from services.pleg.controllers.node_reader import NodeReader
from services.pleg.core import events
from services.pleg.core.node_observation import NodeObservation
from services.pleg.core.observation import Observation
from services.pleg.core.retry_delay import RetryDelay
from services.pleg.core.runtime_trouble import RuntimeTrouble
from shared.cri.interface import PartialObservationError, Runtime, RuntimeCallError
from shared.metrics.family import gauge, histogram

log = logging.getLogger(__name__)

DURATION = histogram("kubelet_pleg_relist_duration_seconds", "Duration of a list of all pods of the runtime.")
INTERVAL = histogram("kubelet_pleg_relist_interval_seconds", "Time between the begins of two such lists.")
LAST_SEEN = gauge("kubelet_pleg_last_seen_seconds", "Time of the last such list, in seconds since the epoch.")

LOOP = "relist"  # the loop's progress is the time of the last successful full list


class RuntimeReport:
    """Reports the trouble `runtime` in the beat, from the errors of each source of calls."""

    def __init__(self, context: Context) -> None:
        self._bus = context.bus
        self._trouble = RuntimeTrouble(context.config.container_runtime_endpoint)

    def note(self, source: str, error: RuntimeCallError | None) -> None:
        """Report the runtime's error in the beat, and once in the log; None = this call succeeded."""
        if self._trouble.note(source, error):
            line = self._trouble.line
            log.error("%s", line) if line else log.info("the container runtime answers again")
            self._bus.trouble("runtime", line)


class Relists:
    """Lists the pods, and reports each list to those that depend on it."""

    def __init__(
        self,
        context: Context,
        runtime: Runtime,
        report: RuntimeReport,
        facts: NodeObservation,
        node: NodeReader,
        stream: EventReader,
    ) -> None:
        self._clock, self._bus, self._runtime, self._report = context.clock, context.bus, runtime, report
        self._facts, self._node, self._stream = facts, node, stream
        metrics = context.metrics
        self._duration, self._interval = metrics.histogram(DURATION), metrics.histogram(INTERVAL)
        self._last_seen = metrics.gauge(LAST_SEEN)
        self._wanted = False
        self._reconsider = asyncio.Event()  # set when the next list may be due earlier than computed

    def want(self) -> None:
        """List again as soon as the list under way has ended."""
        self._wanted = True
        self._reconsider.set()

    def hurry(self) -> None:
        """Compute again when the next list is due."""
        self._reconsider.set()

    async def run(self, observation: Observation, apply: Callable[[events.Event], None]) -> None:
        """List until cancelled. `apply` gets each list as an event; `observation` has the period."""
        retry, last_began = RetryDelay(), None
        while True:
            self._wanted = False
            began_at = self._clock.monotonic()
            if last_began is not None:
                self._interval.observe(began_at - last_began)
            last_began = began_at
            try:
                apply(await self._list(began_at))
            except RuntimeCallError as error:
                if not retry.failing:
                    self._node.runtime_turned()
                self._report.note("list", error)
                await asyncio.sleep(retry.failed())
                continue
            if retry.failing:
                retry.succeeded()
                self._node.runtime_turned()
                self._stream.runtime_back()
            self._bus.progress(LOOP)
            self._facts.relisted(self._clock.monotonic())
            self._last_seen.set(self._clock.wall())
            self._stream.listed(began_at)
            await self._until_next(observation, self._clock.monotonic())

    async def _list(self, began_at: float) -> events.Relisted:
        try:
            pods, unseen = await self._runtime.observe(), frozenset[str]()
        except PartialObservationError as partial:
            pods, unseen = partial.pods, partial.unseen
            self._report.note("list", partial)
        else:
            self._report.note("list", None)
        self._duration.observe(self._clock.monotonic() - began_at)
        return events.Relisted(pods, began_at, unseen)

    async def _until_next(self, observation: Observation, listed_at: float) -> None:
        while not self._wanted:
            left = listed_at + observation.relist_period - self._clock.monotonic()
            if left <= 0:
                return
            await wait_for(self._reconsider, left)
