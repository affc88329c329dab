"""podsync is killed while its calls to a real containerd are under way; containerd gives up in the middle of its work.

Every pod becomes Ready or goes, and nothing is left in the runtime. `NIGHT=1` kills 200 times on each containerd. Two
things may be left outside of it, which no API shows or removes (docs/kill-matrix.md): idle shims and rules of CNI.
"""

import os
from typing import Any

import pytest

from shared.model.runtime import ContainerState
from tests.chaos.call_kills import CallKills
from tests.chaos.cut_calls import BRIDGE_DELETE
from tests.support.agents.agent import NODE
from tests.support.agents.world import World, busybox_pod
from tests.support.installed.debian_containerd import INSTALLED, NEWEST, SUITES, fetch_programs
from tests.support.installed.lacking import lack
from tests.support.waits.deadline import WAIT_SECONDS
from tools.containerd import start_task

pytestmark = pytest.mark.root

LEAVES_A_SHIM = {  # the cut calls after which containerd deletes the bundle of a shim that goes on
    "bookworm": {"RunPodSandbox"},
    "trixie": {"RunPodSandbox"},
    "sid": {"RunPodSandbox", "StartContainer"},
}
KILLS = 200 if os.environ.get("NIGHT") else 8


def each(*daily: str) -> list[Any]:
    """Every containerd, those that are not named at night."""
    return [suite if suite in daily else pytest.param(suite, marks=pytest.mark.night) for suite in SUITES]


def fetched(suite: str) -> str:
    """The suite; the test is skipped where its containerd cannot be had."""
    try:
        fetch_programs(suite)
    except OSError as error:
        lack(str(error))
    return suite


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", each(NEWEST))
async def test_kills_in_the_middle_of_calls_leave_every_pod_ready_or_gone(suite: str) -> None:
    async with CallKills(fetched(suite), seed=int(os.environ.get("FIRST_SEED", "1"))) as kills:
        result = await kills.run(KILLS)
    print(f"containerd of {suite}: {result}")
    assert result.aimed.total() == KILLS
    assert (result.lost, result.left) == ([], {}), str(result)
    assert set(result.shims) <= LEAVES_A_SHIM[suite], str(result)
    assert all(count <= result.cut[call] for call, count in result.shims.items()), str(result)
    assert set(result.rules) <= {BRIDGE_DELETE}, str(result)


async def left_behind(kills: CallKills, name: str) -> str:
    """Start a pod whose StartContainer is held, and give its container a task behind the back of CRI; return the id of
    the container. The held call then fails as one does that was cut off while it made the task."""
    world = kills.world
    rule = kills.proxy.hang("StartContainer", pod=f"{name}-{NODE}")
    world.put_manifest(name, busybox_pod(name))
    await world.wait_for(rule.reached.is_set, "the container to be started")
    pod = await world.runtime_pod(name)
    assert pod is not None
    start_task(kills.containerd.embedded.socket, pod.containers[0].id)
    rule.release.set()
    return pod.containers[0].id


async def runs_again(world: World, name: str, lost: str) -> None:
    """Wait until the pod runs, with another container of the same attempt, and nothing of the lost one is left."""
    pod = await world.wait_running(name)
    assert [(c.attempt, c.state) for c in pod.containers] == [(0, ContainerState.RUNNING)]
    assert lost not in {c.id for c in pod.containers}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("suite", each(INSTALLED, NEWEST))
async def test_a_task_that_a_cut_call_has_left_is_ended_and_named(suite: str) -> None:
    async with CallKills(fetched(suite)) as kills:
        world = kills.world
        lost = await left_behind(kills, "web")
        await runs_again(world, "web", lost)
        await world.wait_for(lambda: "; its task was ended" in world.log_of("podsync"), "podsync to log the task")
        assert world.log_of("podsync").count(f"container main ({lost[:12]})") == 1
        await world.wait_for(
            lambda: f"({lost[:12]}) could not be removed, and its task was ended" in story_of(world),
            "the story to name what was left behind",
        )
        for point in ("podsync.saved.EndTasks", "podsync.published.EndTasks", "podsync.acted.EndTasks"):
            name = point.split(".")[1]
            world.crash_at(point)
            lost = await left_behind(kills, name)
            await runs_again(world, name, lost)
            assert world.crashed, f"{point} was not reached"
            world.reset_start_counts()
        for name in ("web", "saved", "published", "acted"):
            world.remove_manifest(name)
        for name in ("web", "saved", "published", "acted"):
            await world.wait_gone(name)


@pytest.mark.timeout(300)
async def test_where_nothing_ends_the_task_the_pod_goes_on_in_a_new_sandbox_beside_it() -> None:
    async with CallKills(INSTALLED) as kills:
        kills.proxy.forwards_others = False  # a runtime without a task service
        world = kills.world
        lost = await left_behind(kills, "web")

        async def goes_on() -> bool:
            pod = await world.runtime_pod("web")
            running = [c for c in pod.containers if c.state is ContainerState.RUNNING] if pod else []
            return [(c.attempt, c.sandbox_id) for c in running] == [(1, pod.sandboxes[0].id)] if pod else False

        await world.wait_for(goes_on, "the next attempt to run in a new sandbox", 2 * WAIT_SECONDS)
        pod = await world.runtime_pod("web")
        assert pod is not None and lost in {c.id for c in pod.containers}
        assert [s.attempt for s in pod.sandboxes] == [1, 0]
        await world.wait_for(
            lambda: f"({lost[:12]}) cannot be removed and was left behind" in story_of(world), "the story to name it"
        )
        kills.proxy.forwards_others = True
        world.remove_manifest("web")
        await world.wait_gone("web")


def story_of(world: World) -> str:
    """What the stories of all pods have."""
    directory = world.home.path / "kubelet" / "bulkhead" / "podsync" / "stories"
    return "".join(path.read_text() for path in directory.glob("*"))
