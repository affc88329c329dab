"""Memory runs out below the limit of all pods: the pod that grows is evicted before the kernel kills a process."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.cluster import Cluster
from tests.e2e.test_node_allocatable import machine

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

MIB = 1 << 20
# What is in a tmpfs of the pod counts as its memory. It grows by 32 MiB every half second.
GROW = "while :; do dd if=/dev/zero bs=1M count=32 2>/dev/null >> /held/file || break; sleep 0.5; done; sleep 1000000"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    config = {
        "systemReserved": {"memory": str(machine("MemTotal") - 1024 * MIB)},
        "evictionHard": {"memory.available": "400Mi"},
        "evictionPressureTransitionPeriod": "10s",
    }
    async with Cluster(tmp_path_factory.mktemp("cluster"), config=config) as running:
        yield running


async def condition(cluster: Cluster, kind: str) -> str:
    conditions = (await cluster.node())["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == kind))


async def test_the_pod_that_grows_is_evicted_before_the_kernel_kills_and_the_others_stay(cluster: Cluster) -> None:
    await cluster.create(cluster.pod("calm"))
    await cluster.wait_ready("calm")
    grows = cluster.pod("grows", "sh", "-c", GROW, restartPolicy="Never")
    grows["spec"]["volumes"] = [{"name": "held", "emptyDir": {"medium": "Memory"}}]
    grows["spec"]["containers"][0]["volumeMounts"] = [{"name": "held", "mountPath": "/held"}]
    await cluster.create(grows)

    async def evicted() -> Object | None:
        pod = await cluster.get_pod("grows")
        return pod if pod and (pod.get("status") or {}).get("phase") == "Failed" else None

    pod = await cluster.wait_for(evicted, "grows to be evicted", 120)
    status = pod["status"]
    assert status["reason"] == "Evicted"
    assert status["message"].startswith("The node was low on resource: memory. Threshold quantity: 400Mi, available: ")
    assert "OOMKilled" not in str(status)
    disruption = next(c for c in status["conditions"] if c["type"] == "DisruptionTarget")
    assert (disruption["status"], disruption["reason"]) == ("True", "TerminationByKubelet")
    assert await condition(cluster, "MemoryPressure") == "True"
    event = next(event for event in await cluster.events_of("grows") if event["reason"] == "Evicted")
    assert event["metadata"]["annotations"]["starved_resource"] == "memory"
    calm = await cluster.get_pod("calm")
    assert calm is not None and calm["status"]["phase"] == "Running"

    async def relieved() -> bool:
        return await condition(cluster, "MemoryPressure") == "False"

    await cluster.wait_for(relieved, "no pressure", 120)
