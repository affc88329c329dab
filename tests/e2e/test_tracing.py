"""The trace of a pod through all processes that it passes, and of requests, as a collector of OpenTelemetry gets it."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from tests.fakes.trace_collector import Received, TraceCollector
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.installed.chosen_programs import chosen_suite
from tests.support.installed.debian_containerd import INSTALLED
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [
    pytest.mark.root,
    pytest.mark.versions,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(400),
]

WAIT = 2 * WAIT_SECONDS  # seconds
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def collector() -> AsyncIterator[TraceCollector]:
    async with TraceCollector() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(collector: TraceCollector, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    config = {"tracing": {"endpoint": collector.endpoint, "samplingRatePerMillion": 1_000_000}}
    async with Cluster(tmp_path_factory.mktemp("cluster"), config=config) as running:
        await running.create(running.pod("traced", volumes=[{"name": "scratch", "emptyDir": {}}]))
        await running.wait_served("traced")
        yield running


def trace_of(collector: TraceCollector, what: str, pod: str) -> list[Received]:
    """The spans of the trace that this change of the pod began."""
    for root in collector.named(what):
        if root.attributes.get("k8s.pod.name") == pod:
            return collector.traces()[root.trace]
    return []


def has(spans: list[Received], process: str, name: str) -> bool:
    return any(received.process == process and received.span.name == name for received in spans)


async def until_traced(cluster: Cluster, collector: TraceCollector, expected: set[tuple[str, str]]) -> list[Received]:
    async def found() -> bool:
        spans = trace_of(collector, "pod added", "traced")
        return all(has(spans, *one) for one in expected)

    try:
        await cluster.wait_for(found, "the trace of the pod", WAIT)
    except AssertionError:
        pass  # what is missing is shown below
    spans = trace_of(collector, "pod added", "traced")
    shown = {(received.process, received.span.name) for received in spans}
    assert expected <= shown, f"missing {expected - shown} in {sorted(shown)}"
    return spans


async def test_one_trace_shows_the_way_of_a_pod_through_the_processes(
    cluster: Cluster, collector: TraceCollector
) -> None:
    expected = {
        ("sources", "pod added"),
        ("podsync", "RunPodSandbox"),
        ("podsync", "runtime.v1/RunPodSandbox"),
        ("podsync", "runtime.v1/CreateContainer"),
        ("podsync", "runtime.v1/StartContainer"),
        ("volume", "MountVolume"),
        ("status", "HTTP PATCH"),
    }
    if chosen_suite() == INSTALLED:  # an event of containerd 2 comes before pleg knows the trace of the pod
        expected |= {("pleg", "ObservePod"), ("pleg", "runtime.v1/ListContainers")}
    spans = await until_traced(cluster, collector, expected)
    by_id = {received.span.span_id: received for received in spans}
    [root] = [received for received in spans if not received.span.parent_span_id]
    assert (root.process, root.span.name) == ("sources", "pod added")
    called = next(received for received in spans if received.span.name == "runtime.v1/RunPodSandbox")
    work = by_id[called.span.parent_span_id]
    assert (work.process, work.span.name) == ("podsync", "RunPodSandbox")
    patched = next(received for received in spans if received.span.name == "HTTP PATCH")
    assert patched.attributes["url.path"] == "/api/v1/namespaces/default/pods/traced/status"
    assert patched.attributes["http.response.status_code"] == 200
    assert {received.resource["service.name"] for received in spans} == {"kubelet"}
    uid = root.attributes["k8s.pod.uid"]

    async def observation_is_traced() -> bool:
        observed = (look for look in collector.named("ObservePod") if look.attributes["k8s.pod.uid"] == uid)
        return any(has(collector.traces()[look.trace], "pleg", "runtime.v1/ListContainers") for look in observed)

    await cluster.wait_for(observation_is_traced, "the trace of an observation of the pod", WAIT)


async def test_a_request_continues_the_trace_of_its_client(cluster: Cluster, collector: TraceCollector) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*cluster.plane.kubelet_client_pair)
    url, headers = f"https://127.0.0.1:{cluster.agent._port}", {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    async with aiohttp.ClientSession(url, headers=headers) as client:
        for path in ("/stats/summary", "/containerLogs/default/traced/main"):
            async with client.get(path, ssl=context) as answer:
                assert answer.status == 200
                await answer.read()

    async def complete() -> bool:
        spans = collector.traces().get(TRACE, [])
        return has(spans, "server", "containerLogs") and has(spans, "pleg", "pleg/GetUsage")

    await cluster.wait_for(complete, "the trace of the requests", WAIT)
    spans = collector.traces()[TRACE]
    served = next(received for received in spans if received.span.name == "stats/summary")
    assert served.span.parent_span_id.hex() == SPAN
    assert served.attributes["http.response.status_code"] == 200
    ours = {received.process: received for received in spans if received.span.name == "pleg/GetUsage"}
    asked, answered = ours["server"], ours["pleg"]
    assert asked.span.parent_span_id == served.span.span_id
    assert answered.span.parent_span_id == asked.span.span_id


async def test_the_read_only_port_begins_a_trace_with_a_link(cluster: Cluster, collector: TraceCollector) -> None:
    url = f"http://127.0.0.1:{cluster.agent._read_only_port}"
    headers = {"traceparent": f"00-{'e' * 32}-{SPAN}-01"}
    async with aiohttp.ClientSession(url, headers=headers) as client, client.get("/pods") as answer:
        assert answer.status == 200

    def linked() -> Received | None:
        spans = (received for received in collector.named("pods") if received.span.links)
        return next((received for received in spans if received.span.links[0].trace_id.hex() == "e" * 32), None)

    async def found() -> Received | None:
        return linked()

    received: Received = await cluster.wait_for(found, "the span with a link", WAIT)
    assert received.process == "server"
    assert received.trace != "e" * 32


async def test_a_refused_request_has_no_span(cluster: Cluster, collector: TraceCollector) -> None:
    trace = "a" * 32
    url, headers = f"https://127.0.0.1:{cluster.agent._port}", {"traceparent": f"00-{trace}-{SPAN}-01"}
    async with aiohttp.ClientSession(url, headers=headers) as client, client.get("/pods", ssl=False) as answer:
        assert answer.status == 401

    async def later() -> bool:  # server exports in the order in which spans end
        return any(received.attributes["http.route"] == "configz" for received in collector.named("configz"))

    await asyncio.to_thread(cluster.plane.kubectl, "get", "--raw", f"/api/v1/nodes/{NODE}/proxy/configz")
    await cluster.wait_for(later, "a later span of server", WAIT)
    assert trace not in collector.traces()
