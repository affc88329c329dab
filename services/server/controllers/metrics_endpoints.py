"""Answers `/metrics` and `/metrics/probes`: requests the metrics of every process, and shows them as those of one
kubelet.

A process that does not answer within a second is marked in `bulkhead_scrape_missing`; the scrape succeeds. Requests
that arrive while metrics are gathered share the result. Counters are saved before `/metrics` shows them, so that no
counter falls when server restarts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from bus.interface import NoAnswerError, RequestRefusedError
from bus.messages.metrics import GetMetrics, Metrics
from bus.messages.streams import SERVICES
from services.frame.generation import supervisor_generation
from services.frame.launch import Context
from services.frame.metrics import own_metrics
from services.server.adapters.counters_file import CountersFile
from services.server.controllers.pod_streams import PodStreams
from services.server.controllers.request_handler import EndpointHandler
from services.server.controllers.usage_metrics import UsageMetrics
from services.server.core.metrics.gathered_metrics import GatheredMetrics, with_sums
from services.server.core.metrics.metrics_text import CONTENT_TYPE, metrics_text
from services.server.core.routes import Endpoint
from shared.metrics.family import METRICS, PROBES, gauge

TIMEOUT_SECONDS = 1.0  # that a process has to answer
PROBERS = ("pleg",)

MISSING = gauge("bulkhead_scrape_missing", "1 where the process did not answer this scrape, else 0.", "process")


class MetricsEndpoints:
    """Answers requests for metrics, and keeps what it has gathered."""

    def __init__(self, context: Context, streams: PodStreams) -> None:
        self._bus, self._metrics = context.bus, context.metrics
        self._usage = UsageMetrics(context.metrics, context.bus, streams)
        self._saved = CountersFile(Path(context.config.run_dir), supervisor_generation())
        self._restored = False
        self._missing = context.metrics.gauge(MISSING)
        self._gathered = {METRICS: GatheredMetrics(keeps_ended=True), PROBES: GatheredMetrics(keeps_ended=False)}
        self._gathering: dict[str, asyncio.Task[bytes]] = {}

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        return {Endpoint.METRICS: self.metrics, Endpoint.METRICS_PROBES: self.probes}

    async def metrics(self, request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `/metrics`."""
        return page(request, await self._text(METRICS, SERVICES))

    async def probes(self, request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `/metrics/probes`."""
        return page(request, await self._text(PROBES, PROBERS))

    async def _text(self, path: str, processes: Sequence[str]) -> bytes:
        task = self._gathering.get(path)
        if task is None:
            task = self._gathering[path] = asyncio.create_task(self._gather(path, processes), name=f"gather {path}")
            task.add_done_callback(lambda _: self._gathering.pop(path))
        return await asyncio.shield(task)  # a client that leaves does not cancel the task for the others

    async def _gather(self, path: str, processes: Sequence[str]) -> bytes:
        gathered = self._gathered[path]
        others = [process for process in processes if process != self._bus.service]
        asked = asyncio.gather(*(self._ask(process, path) for process in others))
        if path == METRICS:
            await self._usage.read()
            await self._restore(gathered)
        for process, answer in zip(others, await asked, strict=True):
            self._missing.set(float(answer is None), process)
            if answer is None:
                gathered.miss(process)
            else:
                gathered.take(process, answer)
        gathered.take(self._bus.service, own_metrics(self._bus.incarnation, self._metrics, path))
        if path != METRICS:
            return metrics_text(gathered.families())
        await asyncio.to_thread(self._saved.write, gathered.counters())
        return metrics_text(with_sums(gathered.families(), gathered.since))

    async def _restore(self, gathered: GatheredMetrics) -> None:
        if not self._restored and (counters := await asyncio.to_thread(self._saved.read)) is not None:
            gathered.restore(counters)
        self._restored = True

    async def _ask(self, process: str, path: str) -> Metrics | None:
        try:
            return await self._bus.ask(process, GetMetrics(path=path), Metrics, TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError):
            return None


def page(request: web.BaseRequest, text: bytes) -> web.Response:
    """Return a page of metrics, compressed where the client takes it."""
    response = web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    return response
