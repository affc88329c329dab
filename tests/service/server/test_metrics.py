"""/metrics over real HTTP, gathered from every process on the in-memory bus and read by Prometheus's own parser."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request
from prometheus_client.parser import text_string_to_metric_families

from bus.messages.streams import SERVICES
from services.server.controllers.http_metrics import REQUESTS, HttpMetrics
from services.server.controllers.request_handler import AuthFilter, RequestHandler
from services.server.core.authentication import User
from services.server.core.authorization import Attributes
from services.server.core.routes import Served
from shared.metrics.family import counter
from shared.metrics.registry import Registry
from tests.service.server.running import Running, configuration, running

CALLS = counter("calls_total", "Calls.", "to")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(configuration(tmp_path)) as server:
        yield server


async def scrape(server: Running, path: str = "/metrics") -> Samples:
    async with server.client.get(server.read_only + path) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = await response.text()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, metric: str, /, **labels: str) -> float | None:
    return samples.get((metric, frozenset(labels.items())))


async def test_a_scrape_has_the_metrics_of_every_process(server: Running) -> None:
    for metrics in server.node.metrics.values():
        metrics.counter(CALLS).inc("a")
    samples = await scrape(server)
    assert value(samples, "calls_total", to="a") == len(SERVICES) - 1
    for service in SERVICES:
        assert (value(samples, "bulkhead_scrape_missing", process=service) or 0) == 0
    assert value(samples, "kubelet_node_name", node="node-1") == 1
    assert value(samples, "kubernetes_feature_enabled", name="ComponentStatusz", stage="BETA") == 1
    assert value(samples, "kubernetes_feature_enabled", name="AllAlpha", stage="ALPHA") == 0


async def test_pods_and_containers_are_counted(server: Running) -> None:
    assert value(await scrape(server), "kubelet_running_pods") == 0
    await server.node.run_pod()
    samples = await scrape(server)
    assert value(samples, "kubelet_running_pods") == 1
    assert value(samples, "kubelet_running_containers", container_state="running") == 1
    assert value(samples, "kubelet_running_containers", container_state="exited") == 0
    assert value(samples, "kubelet_desired_pods", static="true") == 1
    assert value(samples, "kubelet_active_pods", static="true") == 1
    assert value(samples, "kubelet_active_pods", static="") == 0
    server.node.report_status({"terminated": {"exitCode": 0}})
    status = server.node.status.get("uid-1")
    assert status is not None
    status.status["phase"] = "Succeeded"
    server.node.status.delete("uid-1")
    server.node.status.put("uid-1", status)
    await server.node.network.settle()
    assert value(await scrape(server), "kubelet_active_pods", static="true") == 0


async def test_a_process_that_does_not_answer_is_marked_and_fails_no_scrape(server: Running) -> None:
    server.node.metrics["pleg"].counter(CALLS).inc("a")
    await scrape(server)
    server.node.network.kill("pleg")
    scraping = asyncio.create_task(scrape(server))
    while not scraping.done():
        await server.node.network.advance(0.2)
    samples = await scraping
    assert value(samples, "bulkhead_scrape_missing", process="pleg") == 1
    assert value(samples, "bulkhead_scrape_missing", process="podsync") == 0
    assert value(samples, "calls_total", to="a") == 1  # what it had counted
    await server.node.start("pleg")
    server.node.metrics["pleg"].counter(CALLS).inc("a")
    samples = await scrape(server)
    assert value(samples, "bulkhead_scrape_missing", process="pleg") == 0
    assert value(samples, "calls_total", to="a") == 2


async def test_scrapes_at_the_same_time_share_what_is_gathered(server: Running) -> None:
    collected = 0

    def count() -> None:
        nonlocal collected
        collected += 1

    server.node.metrics["podsync"].before_collecting(count)
    pages = await asyncio.gather(*(scrape(server) for _ in range(20)))
    assert len(pages) == 20
    assert 1 <= collected < 20


async def test_a_scraper_may_have_it_compressed(server: Running) -> None:
    async with server.client.get(server.read_only + "/metrics", headers={"Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert b"kubelet_node_name" in await response.read()


async def test_requests_are_counted_by_a_bounded_set_of_paths(server: Running) -> None:
    for path in ("/pods", "/pods/x", "/nothing/1", "/nothing/2", "/metrics/other"):
        await server.get(server.read_only + path)
    await server.get(server.read_only + "/pods", "PATCH")
    samples = await scrape(server)
    labels = {"server_type": "readonly", "long_running": "false"}
    assert value(samples, REQUESTS.name, method="GET", path="pods", **labels) == 2
    assert value(samples, REQUESTS.name, method="GET", path="other", **labels) == 3
    assert value(samples, REQUESTS.name, method="other", path="pods", **labels) == 1
    assert value(samples, "kubelet_http_inflight_requests", method="GET", path="metrics", **labels) == 1
    assert value(samples, "kubelet_http_requests_duration_seconds_count", method="GET", path="pods", **labels) == 2


def _forbidden(user: str, verb: str) -> str:
    return f"Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[metrics])\n"


@pytest.mark.parametrize("path", ["/metrics", "/metrics/probes"])
@pytest.mark.parametrize(
    ("method", "credentials", "status", "body"),
    [
        ("GET", "Bearer scraper", 200, ""),
        (
            "POST",
            "Bearer scraper",
            403,
            _forbidden("scraper", "create"),
        ),
        ("HEAD", "Bearer scraper", 403, _forbidden("scraper", "")),
        ("GET", "Bearer proxy", 403, _forbidden("proxy", "get")),
        ("GET", "", 401, "Unauthorized"),
        ("GET", "Bearer unknown", 401, "Unauthorized"),
    ],
)
async def test_who_may_scrape(
    server: Running, path: str, method: str, credentials: str, status: int, body: str
) -> None:
    async def review(token: str, _address: str) -> User | None:
        return User(token) if token in ("scraper", "proxy") else None

    async def allows(question: Attributes, _address: str) -> bool:
        granted = {"scraper": ("get", "metrics"), "proxy": ("get", "proxy")}[question.user.name]
        return (question.verb, question.subresource) == granted and question.node == "node-1"

    clients: Callable[..., Awaitable[None]] | None = None
    auth = AuthFilter(clients, allows, review, node="node-1", anonymous=False)  # type: ignore[arg-type]
    handlers = server.service.handlers
    handler = RequestHandler(Served(debugging=True, checks=()), handlers, auth, HttpMetrics(Registry()))
    headers = {"Authorization": credentials} if credentials else {}
    answer = await handler(make_mocked_request(method, path, headers=headers))
    assert answer.status == status
    if body:
        assert answer.body == body.encode()  # type: ignore[attr-defined]
