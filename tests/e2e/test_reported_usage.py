"""With the feature gate PodAndContainerStatsFromCRI a real containerd reports what pods use; containerd 2.1 has stats
of pod sandboxes and no metrics of them, so that /metrics/cadvisor is read from cgroups."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from shared.cri.interface import RuntimeCallError
from shared.model.objects import Object
from tests.support.agents.world import World, busybox_pod
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SECOND = 1_000_000_000
WARNING = "PodAndContainerStatsFromCRI: the runtime has no ListPodSandboxMetrics"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World(config={"featureGates": {"PodAndContainerStatsFromCRI": True}}) as made:
        made.put_manifest("burner", busybox_pod("burner", "sh", "-c", "while :; do :; done"))
        await made.wait_running("burner")
        yield made


async def burner(world: World) -> Object:
    """The pod in the summary, once it has used a second."""

    async def found() -> Any:
        summary = await world.get_json("/stats/summary") or {"pods": []}  # pleg has 5 s to answer
        for pod in summary["pods"]:
            used = pod.get("cpu", {}).get("usageCoreNanoSeconds", 0)
            if pod["podRef"]["name"].startswith("burner") and used > SECOND:
                return pod
        return None

    pod: Object = await world.wait_for(found, "the usage of the pod", 2 * WAIT_SECONDS)
    return pod


async def has_metrics_of_the_pod(world: World) -> bool:
    """Return whether /metrics/cadvisor has the pod: where pleg has not answered within its 5 s it has an error."""
    page = (await world.get("/metrics/cadvisor")).decode()
    return all(text in page for text in ('container="main"', 'pod="burner', "container_scrape_error 0"))


async def test_the_summary_has_the_figures_of_containerd(world: World) -> None:
    pod = await burner(world)
    seen = await world.runtime_pod("burner")
    assert seen is not None
    [stats] = [each for each in await world.runtime.sandbox_stats() if each.id == seen.sandboxes[0].id]
    [container] = pod["containers"]
    [reported] = [figures for key, figures in stats.containers.items() if key == seen.containers[0].id]
    # The runtime was asked later than pleg asked it, and the pod burns at most one processor.
    for shown, now in ((pod, stats.usage.figures), (container, reported.figures)):
        assert 0 < shown["cpu"]["usageCoreNanoSeconds"] <= now["cpu_nanoseconds"]
        assert shown["memory"]["workingSetBytes"] > 0
    assert pod["process_stats"]["process_count"] == stats.processes
    assert [one["name"] for one in pod["network"]["interfaces"]] == [one.name for one in stats.interfaces or ()]
    assert pod["network"]["name"] == "eth0"
    assert "ListPodSandboxStats: usage of pods is read from cgroups" not in world.log_of("pleg")


async def test_a_containerd_without_metrics_of_sandboxes_is_warned_of_once(world: World) -> None:
    with pytest.raises(RuntimeCallError) as refused:
        await world.runtime.sandbox_metrics()
    assert refused.value.code == "Unimplemented"
    await burner(world)
    for _ in range(2):
        await world.wait_for(partial(has_metrics_of_the_pod, world), "the page to have the pod")
    await world.wait_for(lambda: WARNING in world.log_of("server"), "server to log it")  # which a thread writes
    assert world.log_of("server").count(WARNING) == 1
