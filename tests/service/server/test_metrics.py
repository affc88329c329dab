"""/metrics over real HTTP, gathered from every process on the in-memory bus and read by Prometheus's own parser."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from prometheus_client.parser import text_string_to_metric_families

from bus.messages.streams import SERVICES
from services.server.adapters.counters_file import CountersFile
from services.server.controllers.http_metrics import REQUESTS, HttpMetrics
from services.server.controllers.listeners import main_served
from services.server.controllers.request_handler import AuthFilter, RequestHandler
from services.server.core.access.authentication import User
from services.server.core.access.authorization import Attributes
from services.server.core.metrics.gathered_metrics import Counters
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


@pytest.mark.long
async def test_a_process_that_does_not_answer_is_marked_and_fails_no_scrape(server: Running) -> None:
    server.node.metrics["pleg"].counter(CALLS).inc("a")
    await scrape(server)
    server.node.network.kill("pleg")
    samples = await scrape_while_time_passes(server)
    assert value(samples, "bulkhead_scrape_missing", process="pleg") == 1
    assert value(samples, "bulkhead_scrape_missing", process="podsync") == 0
    assert value(samples, "calls_total", to="a") == 1  # what it had counted
    await server.node.start("pleg")
    server.node.metrics["pleg"].counter(CALLS).inc("a")
    samples = await scrape(server)
    assert value(samples, "bulkhead_scrape_missing", process="pleg") == 0
    assert value(samples, "calls_total", to="a") == 2


@pytest.mark.parametrize("saved", [True, False])
async def test_counters_go_on_when_server_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, saved: bool
) -> None:
    """Also what processes had counted that ended before, or while there was no server; `saved`: it is killed in a
    scrape, after the save, else before it."""
    config = configuration(tmp_path)
    async with running(config) as server:
        node = server.node
        for count in (20, 3):
            node.metrics["pleg"].counter(CALLS).inc("a", by=count)
            assert value(await scrape(server), "calls_total", to="a") == (20 if count == 20 else 23)
            node.network.kill("pleg")
            await node.start("pleg")
        node.metrics["podsync"].counter(CALLS).inc("a", by=100)
        before = await scrape(server)
        node.metrics["podsync"].counter(CALLS).inc("a", by=1000)
        write = CountersFile.write

        def write_and_die(file: CountersFile, counters: Counters) -> None:
            if saved:
                write(file, counters)
            raise RuntimeError("killed")

        with monkeypatch.context() as patched:
            patched.setattr(CountersFile, "write", write_and_die)
            assert (await server.get(server.read_only + "/metrics"))[0] == 500  # nothing was shown
    for service in SERVICES:
        if service != "server":
            node.network.kill(service)
    async with running(config, node) as server:
        node.metrics["pleg"].counter(CALLS).inc("a")
        samples = await scrape(server)
    assert value(samples, "calls_total", to="a") == 20 + 3 + 100 + (1000 if saved else 0) + 1
    counters = [key for key in before if key[0].endswith("_total")]
    assert [key for key in counters if samples.get(key, -1.0) < before[key]] == []


async def test_a_damaged_file_of_counters_fails_no_scrape(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    Path(config.run_dir, "metrics.json").write_bytes(b'{"generation": ""')
    async with running(config) as server:
        server.node.metrics["pleg"].counter(CALLS).inc("a")
        assert value(await scrape(server), "calls_total", to="a") == 1


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


async def test_checks_are_counted_and_shown_with_their_last_result(server: Running) -> None:
    assert await scrape(server, "/metrics/slis") == {}
    await server.get(server.read_only + "/healthz")
    server.node.network.kill("volume")
    await server.node.network.advance(40)
    await server.get(server.read_only + "/healthz")
    samples = await scrape(server, "/metrics/slis")
    checks = {"name": "bulkhead-volume", "type": "healthz"}
    assert value(samples, "kubernetes_healthchecks_total", status="success", **checks) == 1
    assert value(samples, "kubernetes_healthchecks_total", status="error", **checks) == 1
    assert value(samples, "kubernetes_healthcheck", **checks) == 0
    assert value(samples, "kubernetes_healthcheck", name="ping", type="healthz") == 1
    assert (await server.get(server.read_only + "/metrics/slis", "DELETE"))[0] == 200
    assert await scrape(server, "/metrics/slis") != {}  # without credentials nothing is reset
    status, body = await ask(server, "DELETE", "/metrics/slis", "delete", "metrics")
    assert (status, body) == (200, b"metrics reset\n")
    assert await scrape(server, "/metrics/slis") == {}


async def test_restarts_and_beats_of_processes_are_measured(server: Running) -> None:
    server.node.buses["pleg"].trouble("runtime", "it is away")
    await server.node.network.advance(2)
    server.node.network.kill("volume")
    await server.node.network.advance(5)
    samples = await scrape_while_time_passes(server)
    assert (value(samples, "bulkhead_beat_age_seconds", process="volume") or 0) >= 5
    assert (value(samples, "bulkhead_beat_age_seconds", process="pleg") or 0) < 5
    assert value(samples, "bulkhead_process_troubles", process="pleg") == 1
    await server.node.start("volume")
    await server.node.network.advance(1)
    samples = await scrape(server)
    assert value(samples, "bulkhead_process_restarts_total", process="volume") == 1
    assert value(samples, "bulkhead_process_restarts_total", process="pleg") == 0


async def scrape_while_time_passes(server: Running) -> Samples:
    """A scrape that waits for a process which does not answer."""
    scraping = asyncio.create_task(scrape(server))
    while not scraping.done():
        await server.node.network.advance(0.2)
    return await scraping


def handler_of(server: Running, verb: str, subresource: str) -> RequestHandler:
    """Return the handler of the main listener, which lets each user do this."""

    async def review(token: str, _address: str) -> User | None:
        return User(token)

    async def allows(question: Attributes, _address: str) -> bool:
        return (question.verb, question.subresource, question.node) == (verb, subresource, "node-1")

    clients: Any = None  # no connection here has TLS
    auth = AuthFilter(clients, allows, review, node="node-1", anonymous=False)
    served = main_served(server.config, ())
    return RequestHandler(served, server.service.handlers, auth, HttpMetrics(Registry()))


async def ask(server: Running, method: str, path: str, verb: str, subresource: str, **more: str) -> tuple[int, bytes]:
    """Status and body of the main listener's answer."""
    headers = {"Authorization": "Bearer scraper", **more}
    handler = handler_of(server, verb, subresource)
    answer: Any = await handler(make_mocked_request(method, path, headers=headers))
    return answer.status, answer.body


async def test_statusz_and_flagz_are_not_shown_in_other_forms(server: Running) -> None:
    for path, subresource in (("/statusz", "statusz"), ("/flagz", "configz")):
        assert (await ask(server, "GET", path, "get", subresource, Accept="text/html"))[0] == 406


async def test_statusz_and_flagz_show_the_agent(tmp_path: Path) -> None:
    given = {"v": "4", "kubeconfig": "CLASSIFIED"}
    async with running(configuration(tmp_path, given_flags=given)) as server:
        status, body = await ask(server, "GET", "/statusz", "get", "statusz")
        assert (status, body.splitlines()[1]) == (200, b"kubelet statusz")
        assert b"/metrics/probes" in body and b"1.37.0" in body
        as_json = "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz"
        status, body = await ask(server, "GET", "/flagz", "get", "configz", Accept=as_json)
        flags = json.loads(body)["flags"]
        assert (flags["v"], flags["kubeconfig"], flags["address"]) == ("4", "CLASSIFIED", "0.0.0.0")


@pytest.mark.parametrize(("gate", "path"), [("ComponentStatusz", "/statusz"), ("ComponentFlagz", "/flagz")])
async def test_a_gate_takes_its_page_away(tmp_path: Path, gate: str, path: str) -> None:
    async with running(configuration(tmp_path, feature_gates={gate: False})) as server:
        assert await ask(server, "GET", path, "get", "statusz") == (404, b"404 page not found\n")
