"""The pages of metrics as Prometheus gets them, through a real API server's proxy and across kills of processes."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from bus.messages.streams import SERVICES
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import WAIT_SECONDS
from tools.metrics_page import REFERENCE, declared

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(400)]

WAIT = 2 * WAIT_SECONDS  # seconds
# Without an error, an eviction, a claim or a rotated certificate there is nothing to show; probes have another page.
NOT_HERE = (
    "kubelet_runtime_operations_errors_total",
    "kubelet_evictions",
    "kubelet_volume_stats_",
    "kubelet_certificate_manager_",
    "kubelet_server_expiration_renew_errors",
    "prober_probe_total",
)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def cluster(empty: Cluster) -> AsyncIterator[Cluster]:
    pod = empty.pod("probed")
    pod["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    pod["spec"]["containers"][0] |= {
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
    }
    await empty.create(pod)
    await empty.wait_ready("probed")
    yield empty


def raw(cluster: Cluster, path: str) -> str:
    return cluster.plane.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/{path}").stdout


def scrape(cluster: Cluster, path: str = "metrics") -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(raw(cluster, path))
        for sample in family.samples
    }


def total(samples: Samples, metric: str, /, **labels: str) -> float:
    """The sum of the series that have these labels."""
    wanted = labels.items()
    return sum(value for (name, found), value in samples.items() if name == metric and wanted <= set(found))


async def until(cluster: Cluster, holds: Callable[[Samples], object], path: str = "metrics") -> Samples:
    """The first scrape that holds; the last one after two minutes, for the assertions that follow."""
    deadline = time.monotonic() + WAIT
    while True:
        samples = await asyncio.to_thread(scrape, cluster, path)
        if holds(samples) or time.monotonic() > deadline:
            return samples
        await asyncio.sleep(1.0)


def nothing_missing(samples: Samples) -> bool:
    return total(samples, "bulkhead_scrape_missing") == 0


# Each process counts what it does in its own time, so that a pod that is Ready may not be in all of them yet.
AT_LEAST: list[tuple[str, dict[str, str], int]] = [
    ("kubelet_running_pods", {}, 1),
    ("kubelet_running_containers", {"container_state": "running"}, 1),
    ("kubelet_started_containers_total", {"container_type": "container"}, 1),
    ("kubelet_pod_start_duration_seconds_count", {}, 1),
    ("kubelet_runtime_operations_total", {"operation_type": "start_container"}, 1),
    ("rest_client_requests_total", {"code": "200"}, 1),
    ("volume_manager_total_volumes", {"plugin_name": "kubernetes.io/empty-dir"}, 2),
    ("kubelet_http_requests_total", {"path": "metrics", "server_type": "readwrite"}, 1),
]


def too_small(samples: Samples) -> list[str]:
    """Return the rows of AT_LEAST whose metric is smaller in the samples."""
    return [f"{metric} {labels}" for metric, labels, least in AT_LEAST if total(samples, metric, **labels) < least]


async def test_what_dashboards_and_alerts_use_is_there(cluster: Cluster) -> None:
    listed = REFERENCE.read_text(encoding="utf-8").partition("### 9.6")[2].partition("## Appendix")[0]
    often_used = {name for name in re.findall(r"\b[a-z]+_[a-z_]+\b", listed) if name in declared()}
    assert len(often_used) > 15

    def missing(samples: Samples) -> set[str]:
        present = {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in samples} | {name for name, _ in samples}
        return {name for name in often_used - present if not name.startswith(NOT_HERE)}

    samples = await until(cluster, lambda samples: not missing(samples) and not too_small(samples))
    assert not missing(samples)
    assert not too_small(samples)
    assert total(samples, "kubelet_node_name", node=NODE) == 1


async def test_each_process_measures_itself(cluster: Cluster) -> None:
    def all_beat(samples: Samples) -> bool:
        return all(total(samples, "bulkhead_bus_beats_total", process=service) > 0 for service in SERVICES)

    samples = await until(cluster, lambda samples: nothing_missing(samples) and all_beat(samples))
    assert all_beat(samples)
    for service in SERVICES:
        for metric in ("cpu_seconds_total", "resident_memory_bytes", "proportional_memory_bytes", "open_fds"):
            assert total(samples, f"bulkhead_process_{metric}", process=service) > 0, (service, metric)
    memory = total(samples, "process_resident_memory_bytes")
    assert memory == total(samples, "bulkhead_process_proportional_memory_bytes")
    assert memory < total(samples, "bulkhead_process_resident_memory_bytes")  # they share most of it
    assert total(samples, "process_start_time_seconds") < time.time()


async def test_probes_have_a_page(cluster: Cluster) -> None:
    labels = {"probe_type": "Readiness", "result": "successful", "pod": "probed", "namespace": "default"}
    samples = await until(cluster, lambda samples: total(samples, "prober_probe_total", **labels), "metrics/probes")
    assert total(samples, "prober_probe_total", **labels) > 0


async def test_the_other_pages_are_answered(cluster: Cluster) -> None:
    raw(cluster, "healthz")
    assert total(scrape(cluster, "metrics/slis"), "kubernetes_healthchecks_total", name="ping", status="success") >= 1
    assert raw(cluster, "statusz").startswith("\nkubelet statusz\n")
    assert "kubeconfig" in raw(cluster, "flagz")


async def test_counters_never_fall_when_processes_are_killed(cluster: Cluster) -> None:
    """Prometheus takes a smaller counter for a restart, and would count all of it again."""
    counters = [name for name, family in declared().items() if family.kind != "gauge" and family.path == "/metrics"]
    counted = {name if declared()[name].kind == "counter" else f"{name}_count" for name in counters}
    before = await until(cluster, nothing_missing)
    for service in ("pleg", "podsync"):
        cluster.agent.kill(service)

        def restarted(samples: Samples, service: str = service) -> bool:
            nonlocal before
            fallen = {
                (name, labels): (before[name, labels], samples.get((name, labels)))
                for name, labels in before
                if name in counted and samples.get((name, labels), -1.0) < before[name, labels]
            }
            assert not fallen, json.dumps({str(key): value for key, value in fallen.items()})
            before = samples
            return nothing_missing(samples) and total(samples, "bulkhead_process_restarts_total", process=service) > 0

        samples = await until(cluster, restarted)
        assert total(samples, "bulkhead_process_restarts_total", process=service) >= 1
        assert nothing_missing(samples)


async def test_stacks_and_a_profile_of_every_real_process_and_the_nodes_logs(cluster: Cluster) -> None:
    async def of_all() -> bool:  # each process has 5 s to answer
        stacks = await asyncio.to_thread(raw, cluster, "debug/pprof/goroutine")
        return all(f"== {service} ==\nThread " in stacks for service in SERVICES)

    await cluster.wait_for(of_all, "the stacks of all processes", WAIT)

    async def profiled() -> bool:
        profiling = asyncio.create_task(asyncio.to_thread(raw, cluster, "debug/pprof/profile?seconds=5"))
        while not profiling.done():  # a process without any work has no line in the profile, and this is work for each
            await of_all()
        profile = await profiling
        why_not = ";(" in profile
        return not why_not and {line.partition(";")[0] for line in profile.splitlines()} == set(SERVICES)

    await cluster.wait_for(profiled, "a profile of all processes", WAIT)
    assert "<pre>" in await asyncio.to_thread(raw, cluster, "logs/")
