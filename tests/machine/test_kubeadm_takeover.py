"""`bulkhead takeover` and `give-back` on a node as kubeadm since 1.29 lays it out, in a machine of its own with a Go
kubelet and our package: unit and drop-in in /usr/lib/systemd/system, and no directory of drop-ins in /etc."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.machine.kubeadm import BY_HAND, OURS, OWN, PACKAGED_UNIT, KubeadmMachine
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1500)]

PODS = ("first", "second")
_POINTS = {
    "takeover": (
        "takeover.saved.WRITE", "takeover.acted.WRITE", "takeover.saved.RELOAD", "takeover.acted.RELOAD",
        "takeover.saved.RESTART", "takeover.acted.RESTART", "takeover.saved.WAIT", "takeover.acted.WAIT",
    ),
    "give-back": (
        "takeover.saved.REMOVE", "takeover.acted.REMOVE", "takeover.saved.RELOAD", "takeover.acted.RELOAD",
        "takeover.saved.RESTART", "takeover.acted.RESTART", "takeover.saved.WAIT", "takeover.acted.WAIT",
    ),
}  # fmt: skip
_KILLS = [
    (command, point, second)
    for command, points in _POINTS.items()
    for point in points
    for second in ("takeover", "give-back")
]
_SAMPLE = {("takeover", "takeover.saved.RESTART", "takeover"), ("give-back", "takeover.acted.RELOAD", "give-back")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubeadmMachine]:
    async with KubeadmMachine(tmp_path_factory.mktemp("kubeadm")) as running:
        try:
            for name in PODS:
                await running.create(running.pod(name))
            await running.wait_ready(*PODS)
            yield running
        finally:
            print(running.machine.last_lines())


async def restarts(node: KubeadmMachine) -> dict[str, tuple[str, int]]:
    """Container and restart count of each pod, by the API server."""
    found = {}
    for name in PODS:
        pod = await node.get_pod(name)
        assert pod is not None
        [status] = pod["status"]["containerStatuses"]
        found[name] = (status["containerID"], status["restartCount"])
    return found


async def test_the_layout_is_that_of_a_new_kubeadm(node: KubeadmMachine) -> None:
    shown = node.machine.show("kubelet", "FragmentPath", "DropInPaths", "NeedDaemonReload", "UnitFileState")
    unit = PACKAGED_UNIT.removeprefix("/usr")  # systemd names it by the link /lib
    assert shown == {
        "FragmentPath": unit, "DropInPaths": f"/usr{unit}.d/10-kubeadm.conf", "NeedDaemonReload": "no",
        "UnitFileState": "enabled",
    }  # fmt: skip
    assert not node.machine.exists(BY_HAND)
    assert node.wait_for_one_kubelet() == OWN


async def test_a_takeover_and_a_give_back_keep_every_container(node: KubeadmMachine) -> None:
    before, tasks = await restarts(node), node.tasks()
    assert len(tasks) == 2 * len(PODS)
    print(node.does("takeover", "--dry-run"))
    assert not node.machine.exists(BY_HAND)
    print(node.does("takeover", "--timeout", "240"))
    assert node.machine.show("kubelet", "NeedDaemonReload") == {"NeedDaemonReload": "no"}
    assert node.wait_for_one_kubelet() == OURS
    await node.wait_served(*PODS)
    assert (await restarts(node), node.tasks()) == (before, tasks)
    assert node.plane.kubectl("exec", "first", "--", "cat", "/proc/1/comm").stdout == "sleep\n"
    answer = json.loads(node.does("give-back", "--timeout", "240", "-o", "json"))
    assert (answer["result"], answer["containers"]["kept"]) == ("done", len(PODS)), answer
    assert node.wait_for_one_kubelet() == OWN
    assert (await restarts(node), node.tasks()) == (before, tasks)
    assert not node.machine.exists(BY_HAND)


@pytest.mark.parametrize(
    ("command", "point", "second"),
    [pytest.param(*kill, marks=() if kill in _SAMPLE else pytest.mark.night) for kill in _KILLS],
)
async def test_one_that_is_killed_is_continued_or_undone(
    node: KubeadmMachine, command: str, point: str, second: str
) -> None:
    before, tasks = await restarts(node), node.tasks()
    if command == "give-back":
        node.does("takeover", "--timeout", "240")
    node.kill(command, point)
    node.does(second, "--timeout", "240")
    assert node.wait_for_one_kubelet() == (OURS if second == "takeover" else OWN)
    node.does("give-back", "--timeout", "240")
    assert node.wait_for_one_kubelet() == OWN
    assert (await restarts(node), node.tasks()) == (before, tasks)


@pytest.mark.night
async def test_a_node_that_was_taken_over_boots_with_bulkhead_and_its_pods(node: KubeadmMachine) -> None:
    before = await restarts(node)
    node.does("takeover", "--timeout", "240")
    node.machine.reboot()

    async def again() -> bool:
        return {name: count for name, (_, count) in (await restarts(node)).items()} == {
            name: count + 1 for name, (_, count) in before.items()
        }

    await node.wait_for(again, "pods to run again", 5 * WAIT_SECONDS)
    await asyncio.to_thread(node.does, "status", "--wait-ready", "240")
    await node.wait_ready(*PODS)
    assert node.wait_for_one_kubelet() == OURS
    node.does("give-back", "--timeout", "240")
    assert node.wait_for_one_kubelet() == OWN
