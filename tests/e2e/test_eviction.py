"""Memory runs out below the limit of all pods: the pod that grows is evicted before the kernel kills a process. Prints
how long after the threshold was crossed the pod received its signal to end.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from math import nan
from pathlib import Path

import pytest
import pytest_asyncio

from shared.host.cgroup_layout import find_hierarchies
from shared.model.objects import Object
from shared.process.child_process import process_end
from tests.e2e.test_node_allocatable import machine
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

MIB = 1 << 20
ENDED_BY_TERM = 143
THRESHOLD = 400 * MIB  # of the 1 GiB that pods have
# What is in a tmpfs of the pod counts as its memory. It grows by 32 MiB every half second, and ends with SIGTERM.
GROW = (
    "trap 'exit 143' TERM; sleep 5; "
    "while :; do dd if=/dev/zero bs=1M count=32 2>/dev/null >> /held/file || break; sleep 0.5 & wait $!; done; "
    "sleep 1000000 & wait $!"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    config = {
        "systemReserved": {"memory": str(machine("MemTotal") - 1024 * MIB)},
        "evictionHard": {"memory.available": "400Mi"},
        "evictionPressureTransitionPeriod": f"{10 * SLOWNESS:.0f}s",  # for which the Node shows it
    }
    async with Cluster(tmp_path_factory.mktemp("cluster"), config=config) as running:
        yield running


async def condition(cluster: Cluster, kind: str) -> str:
    conditions = (await cluster.node())["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == kind))


def available(kubepods: Path) -> int:
    """Bytes below the limit of all pods, as the signal memory.available counts them."""
    v1, v2 = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")
    limit, usage = (int((kubepods / name).read_text()) for name in (v2 if (kubepods / v2[0]).exists() else v1))
    stat = dict(line.split() for line in (kubepods / "memory.stat").read_text().splitlines())
    return limit - usage + int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))


async def seconds_from_threshold_to_end(kubepods: Path, process: int) -> float:
    """Wait until the threshold is crossed, then until the process has ended; the seconds between, nan where the
    threshold was crossed before, or between two looks of a slow machine."""
    if available(kubepods) < THRESHOLD:
        return nan
    while available(kubepods) >= THRESHOLD:
        if not Path(f"/proc/{process}").exists():
            return nan
        await asyncio.sleep(0.01)
    crossed = time.monotonic()
    await process_end(process)
    return time.monotonic() - crossed


async def test_the_pod_that_grows_is_evicted_before_the_kernel_kills_and_the_others_stay(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.create(cluster.pod("calm"))
    await cluster.wait_ready("calm")
    grows = cluster.pod("grows", "sh", "-c", GROW, restartPolicy="Never")
    grows["spec"]["volumes"] = [{"name": "held", "emptyDir": {"medium": "Memory"}}]
    grows["spec"]["containers"][0]["volumeMounts"] = [{"name": "held", "mountPath": "/held"}]
    await cluster.create(grows)
    await cluster.wait_ready("grows")
    observed = (await cluster.agent.runtime.observe()).values()
    [process] = [container.pid for pod in observed if pod.name == "grows" for container in pod.containers]
    trees = find_hierarchies()
    kubepods = (trees.unified or trees.by_controller["memory"]) / cluster.agent.home.path.name / "kubepods"

    async def pressed() -> bool:
        return await condition(cluster, "MemoryPressure") == "True"

    # The Node is written by another task than the pod: before it or after it, and for some seconds only.
    pressure = asyncio.create_task(cluster.wait_for(pressed, "pressure", 4 * WAIT_SECONDS))
    async with asyncio.timeout(2 * WAIT_SECONDS):
        seconds = await seconds_from_threshold_to_end(kubepods, process)
    with capsys.disabled():
        print(f"\nmemory below the threshold → the pod that grows has ended by SIGTERM: {seconds:.2f} s")

    async def evicted() -> Object | None:
        pod = await cluster.get_pod("grows")
        return pod if pod and (pod.get("status") or {}).get("phase") == "Failed" else None

    pod = await cluster.wait_for(evicted, "grows to be evicted", 2 * WAIT_SECONDS)
    status = pod["status"]
    assert status["reason"] == "Evicted"
    assert status["message"].startswith("The node was low on resource: memory. Threshold quantity: 400Mi, available: ")
    assert "OOMKilled" not in str(status)
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == ENDED_BY_TERM
    disruption = next(c for c in status["conditions"] if c["type"] == "DisruptionTarget")
    assert (disruption["status"], disruption["reason"]) == ("True", "TerminationByKubelet")
    await pressure
    event = await cluster.wait_event_of("grows", "Evicted")
    assert event["metadata"]["annotations"]["starved_resource"] == "memory"
    calm = await cluster.get_pod("calm")
    assert calm is not None and calm["status"]["phase"] == "Running"

    async def relieved() -> bool:
        return await condition(cluster, "MemoryPressure") == "False"

    await cluster.wait_for(relieved, "no pressure", 2 * WAIT_SECONDS)
