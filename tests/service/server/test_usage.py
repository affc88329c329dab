"""/stats/summary and the pages of usage over real HTTP, with readings that pleg answers on the in-memory bus."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.interface import RequestRefusedError
from bus.messages.cgroup_details import FoundCgroups, GetCgroups
from bus.messages.usage import FoundUsage, GetUsage
from shared.cri.usage import MetricDescriptor, RuntimeMetric, SandboxMetrics
from tests.service.server.running import UID, Node, Running, configuration, running
from tests.unit.server.test_cadvisor_page import FOUND as FOUND_CGROUPS
from tests.unit.server.test_usage_pages import FOUND


class UsageNode(Node):
    """pleg answers GetUsage and GetCgroups; None = it refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.found: FoundUsage | None = FOUND
        self.cgroups: FoundCgroups | None = FOUND_CGROUPS
        self.requests: list[GetUsage] = []
        self.cgroup_requests: list[GetCgroups] = []

    async def answer_usage(self, request: GetUsage) -> FoundUsage:
        self.requests.append(request)
        if self.found is None:
            raise RequestRefusedError("nothing can be read")
        return self.found

    async def answer_cgroups(self, request: GetCgroups) -> FoundCgroups:
        self.cgroup_requests.append(request)
        if self.cgroups is None:
            raise RequestRefusedError("nothing can be read")
        return self.cgroups


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(configuration(tmp_path), UsageNode()) as server:
        yield server


def node_of(server: Running) -> UsageNode:
    assert isinstance(server.node, UsageNode)
    return server.node


async def summary(server: Running, query: str = "", method: str = "GET", **more: object) -> dict[str, object]:
    url = f"{server.read_only}/stats/summary{query}"
    async with server.client.request(method, url, **more) as response:  # type: ignore[arg-type]
        assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
        text = await response.text()
    found: dict[str, object] = json.loads(text)
    assert text == json.dumps(found, indent=1)
    return found


@pytest.mark.long
async def test_the_summary_names_the_node_and_its_pods(server: Running) -> None:
    found = await summary(server)
    assert isinstance(found["node"], dict) and isinstance(found["pods"], list)
    assert (found["node"]["nodeName"], found["pods"][0]["podRef"]["name"]) == ("node-1", "web")
    assert "volume" in found["pods"][0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "short"),
    [
        ("?only_cpu_and_memory=true", True),
        ("?only_cpu_and_memory=True", False),
        ("?only_cpu_and_memory=true&only_cpu_and_memory=true", False),
        ("?other=true", False),
    ],
)
async def test_the_summary_is_short_only_with_the_exact_parameter(server: Running, query: str, short: bool) -> None:
    found = await summary(server, query)
    assert isinstance(found["pods"], list)
    assert ("volume" not in found["pods"][0]) is short
    assert (node_of(server).requests[-1].max_age_seconds < 10) is short


async def test_the_parameter_may_be_in_a_form(server: Running) -> None:
    found = await summary(server, method="POST", data={"only_cpu_and_memory": "true"})
    assert isinstance(found["pods"], list) and "volume" not in found["pods"][0]
    found = await summary(server, method="POST", data={"only_cpu_and_memory": "true", "more": "x" * 5000})
    assert isinstance(found["pods"], list) and "volume" in found["pods"][0]


async def test_the_resource_page_shows_cpu_and_memory(server: Running) -> None:
    status, text = await server.get(server.read_only + "/metrics/resource")
    assert status == 200
    assert 'pod_cpu_usage_seconds_total{namespace="ns",pod="web"} 12.5 1700000000250\n' in text


async def test_without_a_reading_the_summary_fails_and_the_resource_page_shows_the_error(server: Running) -> None:
    node_of(server).found = None
    status, text = await server.get(server.read_only + "/stats/summary")
    assert (status, text) == (500, "Internal Error: failed to list pod stats: nothing can be read\n")
    status, text = await server.get(server.read_only + "/metrics/resource")
    assert status == 200 and text.endswith("\nresource_scrape_error 1\n")


async def test_the_cadvisor_page_shows_cgroups_and_marks_a_failure(server: Running) -> None:
    status, text = await server.get(server.read_only + "/metrics/cadvisor")
    assert status == 200 and 'container_memory_rss{container="main",' in text
    node_of(server).cgroups = None
    status, text = await server.get(server.read_only + "/metrics/cadvisor")
    assert status == 200 and text.endswith("\ncontainer_scrape_error 1\n")


async def test_claims_and_logs_are_measured_while_there_is_a_pod(server: Running) -> None:
    def measured(text: str) -> list[str]:
        names = ("kubelet_volume_stats_", "kubelet_container_log_")
        return [line for line in text.splitlines() if line.startswith(names)]

    _, text = await server.get(server.read_only + "/metrics")
    assert measured(text) == [] and node_of(server).requests == []
    await server.node.run_pod()
    claim = '{namespace="ns",persistentvolumeclaim="claim"}'
    expected = [
        'kubelet_container_log_filesystem_used_bytes{uid="u",namespace="ns",pod="web",container="main"} 3',
        f"kubelet_volume_stats_health_status_abnormal{claim} 1",
        f"kubelet_volume_stats_used_bytes{claim} 3",
    ]
    _, text = await server.get(server.read_only + "/metrics")
    assert measured(text) == expected
    node_of(server).found = None
    _, text = await server.get(server.read_only + "/metrics")
    assert measured(text) == expected  # pleg did not answer: what it answered last
    server.node.desired.delete(UID)
    await server.node.network.settle()
    _, text = await server.get(server.read_only + "/metrics")
    assert measured(text) == []


async def cadvisor(server: Running) -> str:
    async with server.client.get(f"{server.read_only}/metrics/cadvisor") as response:
        assert response.status == 200
        return await response.text()


@pytest.fixture
async def reporting(tmp_path: Path) -> AsyncIterator[Running]:
    """A server with the feature gate PodAndContainerStatsFromCRI, whose runtime has one metric."""
    config = configuration(tmp_path, feature_gates={"PodAndContainerStatsFromCRI": True})
    node = UsageNode()
    node.cri.descriptors = (MetricDescriptor(name="container_sockets", help="Sockets", labels=("id",)),)
    sample = RuntimeMetric(name="container_sockets", kind="gauge", labels=("/c",), value=5)
    node.cri.sandbox_samples = (SandboxMetrics(id="s", containers={"c": (sample,)}),)
    async with running(config, node) as server:
        yield server


async def test_the_page_of_cadvisor_has_the_metrics_of_the_runtime(reporting: Running) -> None:
    text = await cadvisor(reporting)
    assert 'container_sockets{container="",id="/c",namespace="",pod=""} 5\n' in text
    assert "container_scrape_error 0\n" in text and "machine_cpu_cores" in text
    assert [request.pods for request in node_of(reporting).cgroup_requests] == [False]
    async with reporting.client.get(f"{reporting.read_only}/metrics") as response:
        assert 'kubelet_metrics_provider{provider="cri"} 1' in await response.text()
    node_of(reporting).network.clock.advance(10.0)
    await cadvisor(reporting)
    assert len(node_of(reporting).cri.requests("ListMetricDescriptors")) == 1
    assert len(node_of(reporting).cri.requests("ListPodSandboxMetrics")) == 2


async def test_a_runtime_without_metrics_is_warned_of_once_and_cgroups_are_shown(
    reporting: Running, caplog: pytest.LogCaptureFixture
) -> None:
    node_of(reporting).cri.sandbox_samples = None
    for _ in range(2):
        assert 'pod="web"' in await cadvisor(reporting)
        node_of(reporting).network.clock.advance(10.0)
    assert [request.pods for request in node_of(reporting).cgroup_requests] == [True, True]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    [warning] = warnings
    assert warning.startswith("PodAndContainerStatsFromCRI: the runtime has no ListPodSandboxMetrics: /metrics/cadvis")


async def test_a_runtime_that_cannot_be_reached_is_an_error_of_the_scrape(
    reporting: Running, caplog: pytest.LogCaptureFixture
) -> None:
    node_of(reporting).cri.reachable = False
    for _ in range(2):
        assert "container_scrape_error 1\n" in await cadvisor(reporting)
    warnings = [record.getMessage() for record in caplog.records if "/metrics/cadvisor is empty" in record.getMessage()]
    assert len(warnings) == 1 and "connection refused" in warnings[0]
    node_of(reporting).cri.reachable = True
    assert "container_scrape_error 0\n" in await cadvisor(reporting)
