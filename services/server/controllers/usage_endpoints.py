"""Answers `/stats/summary`, `/metrics/resource` and `/metrics/cadvisor`: each shows one of pleg's readings."""

import asyncio
import logging

import orjson
from aiohttp import web

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.cgroup_details import FoundCgroups, GetCgroups
from bus.messages.usage import FoundUsage, GetUsage
from services.server.adapters.plain_answer import plain
from services.server.controllers.metrics_endpoints import page
from services.server.controllers.request_handler import EndpointHandler
from services.server.controllers.runtime_metrics import RuntimeMetrics
from services.server.core.go_text import parse_query
from services.server.core.metrics.cadvisor_metrics import cadvisor_page
from services.server.core.metrics.resource_metrics import resource_page
from services.server.core.metrics.stats_summary import summary, with_one_space
from services.server.core.routes import Endpoint
from shared.cri.interface import RuntimeCallError

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0  # that pleg has to answer, and the runtime
READING_SECONDS = 10.0  # between pleg's readings: an answer is at most this old
MAX_FRESH_AGE_SECONDS = 2.0  # the greatest age of a reading for clients that compute rates from two answers
ONLY_CPU_AND_MEMORY = "only_cpu_and_memory"
FORM = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 4096


class UsageEndpoints:
    """Answers requests for usage; `node_name` is the name of the node in a summary. `reported`: the metrics that the
    runtime has of pods, None = those are read from cgroups."""

    def __init__(self, bus: Bus, node_name: str, reported: RuntimeMetrics | None = None) -> None:
        self._bus, self._node_name, self._reported = bus, node_name, reported
        self._trouble = ""  # with the last request for /metrics/cadvisor

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        return {
            Endpoint.STATS_SUMMARY: self.stats_summary,
            Endpoint.METRICS_RESOURCE: self.resource,
            Endpoint.METRICS_CADVISOR: self.cadvisor,
        }

    async def stats_summary(self, request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET` and `POST /stats/summary`."""
        values = parse_query(request.rel_url.raw_query_string).get(ONLY_CPU_AND_MEMORY, [])
        if request.method == "POST" and request.content_type == FORM:
            values = [*parse_query(await _form(request)).get(ONLY_CPU_AND_MEMORY, []), *values]
        only_cpu_and_memory = values == ["true"]
        try:
            found = await self._usage(MAX_FRESH_AGE_SECONDS if only_cpu_and_memory else READING_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            return plain(500, f"Internal Error: failed to list pod stats: {error}\n")
        document = summary(found, self._node_name, only_cpu_and_memory=only_cpu_and_memory)
        text = with_one_space(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        return web.Response(body=text, headers={"Content-Type": "application/json"})

    async def resource(self, request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `/metrics/resource`."""
        try:
            found = await self._usage(MAX_FRESH_AGE_SECONDS)
        except (NoAnswerError, RequestRefusedError):
            found = None
        return page(request, resource_page(found))

    async def cadvisor(self, request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `/metrics/cadvisor`."""
        reported = None
        try:
            if self._reported is not None:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    reported = await self._reported.read()
            asked = GetCgroups(max_age_seconds=MAX_FRESH_AGE_SECONDS, pods=reported is None)
            found = await self._bus.ask("pleg", asked, FoundCgroups, TIMEOUT_SECONDS)
            self._trouble = ""
        except (NoAnswerError, RequestRefusedError, RuntimeCallError, TimeoutError) as error:
            found = None
            trouble = str(error) or "the runtime did not answer ListPodSandboxMetrics in time"
            if trouble != self._trouble:
                log.warning("/metrics/cadvisor is empty: %s", trouble)
            self._trouble = trouble
        return page(request, cadvisor_page(found, reported))

    async def _usage(self, max_age_seconds: float) -> FoundUsage:
        return await self._bus.ask("pleg", GetUsage(max_age_seconds=max_age_seconds), FoundUsage, TIMEOUT_SECONDS)


async def _form(request: web.BaseRequest) -> str:
    """Return the content of a form; "" where it is too long, of unknown length or late."""
    if not 0 < (request.content_length or 0) <= MAX_FORM_BYTES:
        return ""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return (await request.read()).decode(errors="replace")
    except TimeoutError:
        return ""
