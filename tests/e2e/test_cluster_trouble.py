"""A node of a real cluster while things break: processes killed, API server away, agent stopped for a while.

What is asserted is what the API server's watches show, never our own logs.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from shared.kube import paths
from shared.model.objects import Object
from shared.model.runtime import ContainerState, RuntimePod
from tests.support.agents.agent import NODE
from tests.support.agents.conditions import condition_of, is_ready
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

SOON = WAIT_SECONDS / 2  # two or three seconds where the machine has nothing else to do
NOTICED = 1.2 * WAIT_SECONDS  # seconds within which the return of the API server is noticed, after half a minute


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with Cluster(directory, plane={"audit": True}) as running:
        yield running


async def settle(cluster: Cluster, *names: str) -> None:
    """Nothing of these pods is left for the next test."""
    for name in names:
        await cluster.delete_pod(name, grace=0)
    await cluster.wait_gone(*names)
    cluster.agent.reset_start_counts()


async def test_the_api_server_away(cluster: Cluster) -> None:
    """Pods go on and are restarted; a static pod starts; the node is back in sync soon after its return."""
    await cluster.create(cluster.pod("steady"))
    await cluster.create(cluster.pod("doomed"))
    await cluster.wait_ready("steady", "doomed")
    await cluster.plane.stop_api_server()
    pod = next(pod for name, pod in await _runtime_pods(cluster) if name == "steady")
    await cluster.agent.runtime.stop_container(pod.containers[0].id, 0)

    async def restarted() -> bool:
        return any(
            name == "steady" and c.attempt == 1 and c.state is ContainerState.RUNNING
            for name, pod in await _runtime_pods(cluster)
            for c in pod.containers
        )

    await cluster.agent.wait_for(restarted, "the container to be restarted without the API server")
    cluster.agent.put_manifest("alone", {**cluster.pod("alone"), "spec": _without_node(cluster.pod("alone")["spec"])})
    await cluster.agent.wait_running("alone")
    cluster.agent.kill("sources")
    cluster.agent.kill("status")
    await asyncio.sleep(15)  # long enough for every back-off to grow
    assert "doomed" in await _containers(cluster), "a pod ended although the API server was unreachable"
    await cluster.plane.start_api_server()
    began = time.monotonic()
    await cluster.plane.admin.delete(paths.pod("default", "doomed"), {"gracePeriodSeconds": 1})
    await cluster.wait_pod(
        "steady", lambda p: p["status"]["containerStatuses"][0]["restartCount"] == 1, "to show its restart"
    )
    await cluster.wait_gone("doomed", seconds=SOON + NOTICED)
    await cluster.wait_ready(f"alone-{NODE}", "steady")
    assert time.monotonic() - began < SOON + NOTICED
    cluster.agent.remove_manifest("alone")
    await cluster.wait_gone(f"alone-{NODE}")
    await settle(cluster, "steady")


@pytest.mark.night
async def test_the_api_server_that_does_not_answer(cluster: Cluster) -> None:
    """Connections stay open without answers: nothing breaks, and the node is back in sync soon afterwards."""
    await cluster.create(cluster.pod("waiting"))
    await cluster.wait_ready("waiting")
    cluster.plane.pause()
    await asyncio.sleep(25)
    running = [
        name for name, pod in await _runtime_pods(cluster) for c in pod.containers if c.state is ContainerState.RUNNING
    ]
    assert "waiting" in running
    cluster.plane.resume()
    began = time.monotonic()
    await cluster.create(cluster.pod("after"))
    await cluster.wait_ready("after")
    assert time.monotonic() - began < SOON
    node = await cluster.node()
    assert is_ready(node)
    await settle(cluster, "waiting", "after")


@pytest.mark.night
async def test_a_stopped_process_makes_the_node_not_ready_by_name(cluster: Cluster) -> None:
    """A stopped process is not restarted. After 30 s the node names it, and the lease goes on."""
    pid = cluster.agent.kill("volume", signal.SIGSTOP)

    async def named() -> bool:
        ready = condition_of(await cluster.node(), "Ready")
        return ready["status"] == "False" and "volume is not healthy" in ready["message"]

    await asyncio.sleep(20)
    assert is_ready(await cluster.node()), "less than 30 s are no matter"
    await cluster.wait_for(named, "the node to name the process that hangs")
    cluster.agent.kill("volume", signal.SIGCONT)

    async def well() -> bool:
        return is_ready(await cluster.node())

    await cluster.wait_for(well, "the node to be ready again")
    assert pid


@pytest.mark.night
async def test_an_agent_stopped_for_a_minute(cluster: Cluster) -> None:
    """Pods are created and deleted meanwhile: those that stay go on in the same containers, the rest converges."""
    stay, leave, come = ["stay-0", "stay-1"], ["leave-0", "leave-1"], ["come-0", "come-1"]
    for name in (*stay, *leave):
        await cluster.create(cluster.pod(name))
    await cluster.wait_ready(*stay, *leave)
    before = await _containers(cluster)
    cluster.agent.supervisorctl("stop", *SERVICES)
    await cluster.delete_pod(leave[0])
    await cluster.delete_pod(leave[1], grace=0)
    for name in come:
        await cluster.create(cluster.pod(name))
    await asyncio.sleep(60)
    assert set(await _containers(cluster)) == {*stay, *leave}
    cluster.agent.supervisorctl("start", *SERVICES)
    await cluster.wait_ready(*stay, *come)
    await cluster.wait_gone(*leave)
    after = await _containers(cluster)
    assert {name: after[name] for name in stay} == {name: before[name] for name in stay}

    async def ended() -> bool:
        running = [
            n for n, pod in await _runtime_pods(cluster) for c in pod.containers if c.state is ContainerState.RUNNING
        ]
        return not set(running) & set(leave)

    await cluster.agent.wait_for(ended, "the pods deleted meanwhile to end")
    await settle(cluster, *stay, *come)


async def test_a_nul_in_a_pod_harms_that_pod_alone(cluster: Cluster) -> None:
    """The API server of 1.20 lets NUL characters through. A pod with one must neither delay others nor stay forever."""
    poisoned = cluster.pod("poisoned")
    poisoned["spec"]["containers"][0]["env"] = [{"name": "X", "value": "a\x00b"}]
    await cluster.create(poisoned)
    await cluster.create(cluster.pod("marked"))
    await cluster.create(cluster.pod("healthy"))
    await cluster.wait_ready("marked", "healthy")
    patch = {"metadata": {"annotations": {"note": "a\x00b"}}}
    await cluster.plane.admin.patch(paths.pod("default", "marked"), patch)
    for service in ("sources", "podsync", "volume", "status"):
        cluster.agent.kill(service)
    await cluster.delete_pod("healthy")
    await cluster.delete_pod("marked")
    await cluster.delete_pod("poisoned")
    await cluster.wait_gone("healthy", "marked", "poisoned")
    cluster.agent.reset_start_counts()


async def test_a_cluster_that_lost_its_store(cluster: Cluster) -> None:
    """All objects are gone and versions count from one: the old pods end; an agent that is restarted joins again."""
    await cluster.create(cluster.pod("lost"))
    await cluster.wait_ready("lost")
    await cluster.plane.lose_everything()
    assert await cluster.agent.stop_supervisord() == 0
    await cluster.agent.start()
    await cluster.wait_node_ready()

    async def ended() -> bool:
        running = [
            n for n, p in await _runtime_pods(cluster) for c in p.containers if c.state is ContainerState.RUNNING
        ]
        return "lost" not in running

    await cluster.agent.wait_for(ended, "the pods of the lost store to end")


async def _runtime_pods(cluster: Cluster) -> list[tuple[str, RuntimePod]]:
    return [(pod.name, pod) for pod in (await cluster.agent.runtime.observe()).values()]


async def _containers(cluster: Cluster) -> dict[str, list[str]]:
    """Pod name -> ids of its containers, of pods that have any: sandboxes of ended ones stay for up to a minute."""
    return {name: [c.id for c in pod.containers] for name, pod in await _runtime_pods(cluster) if pod.containers}


def _without_node(spec: Object) -> Object:
    return {key: value for key, value in spec.items() if key != "nodeName"}
