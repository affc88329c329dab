"""What a pod uses, seen through the API server's proxy: /stats/summary and the pages that Prometheus reads."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable

import pytest
import pytest_asyncio
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

SECOND = 1_000_000_000
MIB = 2**20
WAIT = 2 * WAIT_SECONDS
THROTTLED = "container_cpu_cfs_throttled_periods_total"
BURN = "dd if=/dev/zero of=/scratch/file bs=1M count=8; echo begun; while :; do :; done"


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def cluster(empty: Cluster) -> AsyncIterator[Cluster]:
    pod = empty.pod("burner", "sh", "-c", BURN)
    pod["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    pod["spec"]["containers"][0] |= {
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "resources": {"limits": {"cpu": "200m", "memory": "64Mi"}},
    }
    await empty.create(pod)
    await empty.wait_ready("burner")
    yield empty


def raw(cluster: Cluster, path: str) -> str:
    return cluster.plane.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/{path}").stdout


def families(cluster: Cluster, path: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(raw(cluster, path))}


def burner_of(summary: Object) -> Object:
    return next((pod for pod in summary["pods"] if pod["podRef"]["name"] == "burner"), {})


async def until(read: Callable[[], Object], holds: Callable[[Object], object]) -> Object:
    """Read until `holds` is true of the value, and return it; after WAIT the last value, for the assertion that
    follows. A request that fails meanwhile is sent again, because pleg has only 5 s to answer."""
    deadline = time.monotonic() + WAIT
    while True:
        try:
            found = await asyncio.to_thread(read)
        except AssertionError:  # of kubectl
            if time.monotonic() > deadline:
                raise
        else:
            if holds(found) or time.monotonic() > deadline:
                return found
        await asyncio.sleep(1.0)


def burns(pod: Object) -> bool:
    of_containers = [container.get("cpu", {}) for container in pod.get("containers", ())]
    rates = [cpu.get("usageNanoCores", 0) for cpu in (pod.get("cpu", {}), *of_containers)]
    return len(rates) > 1 and all(rates) and pod["cpu"].get("usageCoreNanoSeconds", 0) > SECOND


async def test_the_summary_shows_what_a_pod_burns(cluster: Cluster) -> None:
    summary: Object = {}

    def read() -> Object:
        summary.update(json.loads(raw(cluster, "stats/summary")))
        return burner_of(summary)

    pod = await until(read, burns)
    assert burns(pod)
    (container,) = pod["containers"]
    assert container["name"] == "main" and container["cpu"]["usageNanoCores"] > 0
    assert 0 < container["memory"]["workingSetBytes"] < 64 * MIB
    assert container["memory"]["availableBytes"] + container["memory"]["workingSetBytes"] == 64 * MIB
    assert pod["process_stats"]["process_count"] >= 1
    node = summary["node"]
    assert node["nodeName"] == NODE
    assert node["cpu"]["usageCoreNanoSeconds"] > pod["cpu"]["usageCoreNanoSeconds"]
    assert 0 < node["fs"]["availableBytes"] < node["fs"]["capacityBytes"]
    assert node["rlimit"]["maxpid"] > node["rlimit"]["curproc"] > 0
    assert "pods" in [system["name"] for system in node["systemContainers"]]


async def test_the_summary_shows_network_files_and_volumes_of_a_pod(cluster: Cluster) -> None:
    def is_measured(pod: Object) -> bool:  # volumes, logs and the writable layer are measured at different times
        volumes = {volume["name"]: volume.get("usedBytes", 0) for volume in pod.get("volume", ())}
        logs = [container.get("logs", {}).get("usedBytes", 0) for container in pod.get("containers", ())]
        layers = ["rootfs" in container for container in pod.get("containers", ())]
        total = pod.get("ephemeral-storage", {}).get("usedBytes", 0)
        return volumes.get("scratch", 0) >= 8 * MIB and total > 8 * MIB and any(logs) and any(layers)

    pod = await until(lambda: burner_of(json.loads(raw(cluster, "stats/summary"))), is_measured)
    assert is_measured(pod)
    used = {volume["name"]: volume["usedBytes"] for volume in pod["volume"]}
    assert 8 * MIB <= used["scratch"] < 9 * MIB
    assert pod["network"]["name"] == "eth0" and pod["network"]["interfaces"][0]["rxBytes"] >= 0
    (container,) = pod["containers"]
    assert container["logs"]["usedBytes"] > 0 and container["logs"]["capacityBytes"] > 0
    assert container["rootfs"]["capacityBytes"] > 0 and container["rootfs"]["usedBytes"] >= 0


async def test_metrics_server_gets_cpu_and_memory_with_the_time_of_the_reading(cluster: Cluster) -> None:
    def mine(found: Iterable[Metric]) -> dict[str, tuple[float, float]]:
        return {
            sample.name: (sample.value, float(sample.timestamp or 0))
            for family in found
            for sample in family.samples
            if sample.labels.get("pod") == "burner" and sample.labels.get("container") in ("main", None)
        }

    def read() -> dict[str, tuple[float, float]]:
        return mine(families(cluster, "metrics/resource").values())

    counters = ("container_cpu_usage_seconds_total", "pod_cpu_usage_seconds_total")
    first = await until(read, lambda found: {*counters, "container_memory_working_set_bytes"} <= found.keys())
    assert first["container_memory_working_set_bytes"][0] > 0

    def has_newer(found: Object) -> bool:
        return all(name in found and found[name][1] > first[name][1] for name in counters)

    second = await until(read, has_newer)
    for name in counters:
        assert second[name][0] > first[name][0] and second[name][1] > first[name][1]


async def test_prometheus_gets_container_sandbox_pod_and_machine_from_the_cadvisor_page(cluster: Cluster) -> None:
    def read() -> dict[str, dict[tuple[str, str], float]]:
        found: dict[str, dict[tuple[str, str], float]] = {}
        for family in families(cluster, "metrics/cadvisor").values():
            for sample in family.samples:
                labels = sample.labels
                if labels.get("pod", "burner") == "burner":
                    kind = labels.get("container") or (labels.get("image") and "sandbox") or "pod"
                    found.setdefault(sample.name, {})[kind, labels.get("interface", "")] = sample.value
        return found

    found = await until(read, lambda found: found.get(THROTTLED, {}).get(("main", ""), 0) > 0)
    assert found["container_cpu_usage_seconds_total"]["main", ""] > 0
    assert found["container_cpu_usage_seconds_total"]["pod", ""] > 0
    assert found[THROTTLED]["main", ""] > 0  # it burns more than its limit
    assert found["container_spec_cpu_quota"]["main", ""] == 20_000
    assert found["container_spec_memory_limit_bytes"]["main", ""] == 64 * MIB
    assert 0 < found["container_memory_working_set_bytes"]["main", ""] < 64 * MIB
    assert found["container_network_receive_bytes_total"]["sandbox", "eth0"] >= 0
    assert found["container_start_time_seconds"]["main", ""] > 0
    assert found["machine_cpu_cores"]["pod", ""] >= 1
    assert found["container_scrape_error"]["pod", ""] == 0

    def read_root() -> dict[str, float]:
        family = families(cluster, "metrics/cadvisor").get("container_memory_working_set_bytes")
        return {sample.labels["id"]: sample.value for sample in family.samples} if family is not None else {}

    assert (await until(read_root, lambda found: "/" in found))["/"] > 0  # pleg has 5 s to answer
