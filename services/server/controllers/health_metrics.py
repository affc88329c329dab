"""Counts the checks of `/healthz` for `/metrics/slis`, and measures the beats of all processes."""

from aiohttp import web

from bus.interface import Bus
from bus.messages.beat import Beat
from services.frame.metrics import own_metrics
from services.server.controllers.metrics_endpoints import page
from services.server.controllers.request_handler import EndpointHandler
from services.server.core.metrics.metrics_text import metrics_text
from services.server.core.pages.health import Check
from services.server.core.routes import RESET, Endpoint
from shared.metrics.family import SLIS, counter, gauge
from shared.metrics.registry import Registry
from shared.time.clock import Clock

HEALTHY = gauge("kubernetes_healthcheck", "1 where the health check passed last, else 0.", "name", "type", path=SLIS)
CHECKED = counter("kubernetes_healthchecks_total", "Health checks by result.", "name", "type", "status", path=SLIS)
AGE = gauge("bulkhead_beat_age_seconds", "Time since the newest beat of the process.", "process")
RESTARTS = counter("bulkhead_process_restarts_total", "Restarts of the process that server has observed.", "process")
TROUBLES = gauge("bulkhead_process_troubles", "Troubles in the newest beat of the process.", "process")

_TYPE = "healthz"


class CheckMetrics:
    """Counts each check that a request caused; `/metrics/slis` shows and resets the counts."""

    def __init__(self, metrics: Registry, bus: Bus) -> None:
        self._metrics, self._bus = metrics, bus
        self._healthy, self._checked = metrics.gauge(HEALTHY), metrics.counter(CHECKED)

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        return {Endpoint.METRICS_SLIS: self.slis}

    def count(self, checks: tuple[Check, ...]) -> tuple[Check, ...]:
        """Count these results, and return them."""
        for check in checks:
            self._healthy.set(float(not check.error), check.name, _TYPE)
            self._checked.inc(check.name, _TYPE, "error" if check.error else "success")
        return checks

    async def slis(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `/metrics/slis`; DELETE on the main listener resets the counts (server.md 9.5)."""
        if parameters == RESET:
            self._healthy.clear()
            self._checked.clear()
            return page(request, b"metrics reset\n")
        metrics = own_metrics(self._bus.incarnation, self._metrics, SLIS)
        return page(request, metrics_text(metrics.families))


class BeatMetrics:
    """Measures the age and the content of the newest beat of each process. A restart is another incarnation."""

    def __init__(self, metrics: Registry, bus: Bus, clock: Clock) -> None:
        self._clock = clock
        self._age, self._troubles = metrics.gauge(AGE), metrics.gauge(TROUBLES)
        self._restarts = metrics.counter(RESTARTS)
        self._newest: dict[str, tuple[Beat, float]] = {}
        bus.on_beat(self._take)
        metrics.before_collecting(self._measure)

    def _take(self, beat: Beat) -> None:
        before = self._newest.get(beat.service)
        self._restarts.ensure(beat.service)
        if before is not None and before[0].incarnation != beat.incarnation:
            self._restarts.inc(beat.service)
        self._newest[beat.service] = beat, self._clock.monotonic()

    def _measure(self) -> None:
        now = self._clock.monotonic()
        for service, (beat, received_at) in self._newest.items():
            self._age.set(now - received_at, service)
            self._troubles.set(len(beat.troubles), service)
