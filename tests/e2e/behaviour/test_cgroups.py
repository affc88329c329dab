"""Where the processes of a pod are, what the cgroups around them were given, and what is left when the pod is gone."""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from shared.host.cgroup_layout import Hierarchies, find_hierarchies
from shared.model.objects import Object
from shared.model.quantity import ZERO
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import pod_requests, shares
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import Node, container, pod_of, status_of
from tests.support.runtime.cgroup_values import cpu_share, memory, quota, share_of
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

BOTH = {"cpu": "100m", "memory": "32Mi"}
TREES: Hierarchies = find_hierarchies()


def asking(name: str, **resources: dict[str, str]) -> Object:
    """A container with these requests and limits."""
    return container(name, resources=resources)


PODS = {
    "cgroups-sure": pod_of("cgroups-sure", asking("c", requests=BOTH, limits=BOTH)),
    "cgroups-burst": pod_of("cgroups-burst", asking("c", requests={"cpu": "250m"}), container("d")),
    "cgroups-best": pod_of("cgroups-best", container("c")),
    "cgroups-again": pod_of("cgroups-again", container("c")),
    "cgroups-end": pod_of("cgroups-end", asking("c", requests={"cpu": "10m"})),
    "cgroups-leftover": pod_of("cgroups-leftover", container("c")),
    "cgroups-lost": pod_of("cgroups-lost", asking("c", requests=BOTH, limits=BOTH)),
    "cgroups-away": pod_of("cgroups-away", asking("c", requests=BOTH, limits=BOTH)),
}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    node.put(PODS)
    for name in PODS:
        await node.agent.wait_running(name)
    yield
    here = [name for name in PODS if (node.agent.home.manifests / f"{name}.yaml").exists()]
    await node.take_away(here)


def kubepods(node: Node) -> str:
    return f"/{node.agent.home.path.name}/kubepods"


async def cgroup_of(node: Node, name: str, qos: str = "") -> str:
    """The pod's cgroup, from the top."""
    pod = await node.agent.runtime_pod(name)
    assert pod is not None
    return "/".join((kubepods(node), *([qos] if qos else []), f"pod{pod.uid}"))


def left_of(cgroup: str) -> list[Path]:
    return [place for place in TREES.places(cgroup) if place.exists()]


@pytest.mark.parametrize(
    ("name", "qos"), [("cgroups-sure", ""), ("cgroups-burst", "burstable"), ("cgroups-best", "besteffort")]
)
async def test_a_containers_processes_are_below_its_pods_cgroup_in_every_tree(node: Node, name: str, qos: str) -> None:
    cgroup = await cgroup_of(node, name, qos)
    [instance] = await node.instances(name, "c")
    lines = Path(f"/proc/{instance.pid}/cgroup").read_text().splitlines()
    places = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    trees = {"cpu", "cpuacct", "cpuset", "memory", "pids", "name=systemd"} if TREES.unified is None else {""}
    seen = {tree: path for named, path in places.items() for tree in named.split(",") if tree in trees}
    assert seen.keys() == trees
    assert set(seen.values()) == {f"{cgroup}/{instance.id}"}


@pytest.mark.parametrize(
    ("name", "qos", "given"),
    [
        ("cgroups-sure", "", (share_of(102), "10000", str(32 << 20))),
        ("cgroups-burst", "burstable", (share_of(256), "", "")),
        ("cgroups-best", "besteffort", (share_of(2), "", "")),
    ],
)
async def test_a_pod_is_held_to_its_limits_and_has_the_share_of_its_requests(
    node: Node, name: str, qos: str, given: tuple[str, str, str]
) -> None:
    cgroup = await cgroup_of(node, name, qos)
    assert (cpu_share(cgroup), quota(cgroup), memory(cgroup)) == given


async def burstable_share(node: Node) -> str:
    """What Burstable pods together should have now."""
    listed = [pod for pod in await node.agent.pods() if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    requests = (pod_requests(pod).get("cpu", ZERO) for pod in listed if qos_class(pod) is QosClass.BURSTABLE)
    return share_of(shares(sum(amount.milli() for amount in requests)))


async def test_the_qos_classes_share_by_what_their_pods_ask_for(node: Node) -> None:
    async def right() -> bool:
        return cpu_share(f"{kubepods(node)}/burstable") == await burstable_share(node)

    await node.agent.wait_for(right, "the shares of burstable", 2 * WAIT_SECONDS)
    assert cpu_share(f"{kubepods(node)}/besteffort") == share_of(2)


async def test_the_shares_of_burstable_go_up_and_down_with_its_pods(node: Node) -> None:
    node.put({"cgroups-big": pod_of("cgroups-big", asking("c", requests={"cpu": "400m"}))})
    await node.agent.wait_running("cgroups-big")
    up = int(cpu_share(f"{kubepods(node)}/burstable"))
    assert up > int(share_of(512))
    await node.take_away(["cgroups-big"])
    node.put({"cgroups-next": pod_of("cgroups-next", container("c"))})
    await node.agent.wait_running("cgroups-next")

    async def down() -> bool:
        return int(cpu_share(f"{kubepods(node)}/burstable")) < up

    await node.agent.wait_for(down, "the shares to come down", 2 * WAIT_SECONDS)
    await node.take_away(["cgroups-next"])


async def test_all_pods_together_are_held_to_the_machine(node: Node) -> None:
    capacity = (await node.node())["status"]["capacity"]
    assert memory(kubepods(node)) == str(int(capacity["memory"].removesuffix("Ki")) * 1024)
    assert cpu_share(kubepods(node)) == share_of(1024 * int(capacity["cpu"]))

    async def messages_found() -> list[str]:
        events = await node.events_of(NODE)
        return [event["message"] for event in events if event["reason"] == "NodeAllocatableEnforced"]

    messages = await node.agent.wait_for(messages_found, "the event")
    assert set(messages) == {"Updated Node Allocatable limit across pods"}


async def test_a_container_that_restarts_stays_in_the_cgroup_of_its_pod(node: Node) -> None:
    cgroup = await cgroup_of(node, "cgroups-again", "besteffort")
    before = left_of(cgroup)[0].stat().st_ino
    [first] = await node.instances("cgroups-again", "c")
    os.kill(first.pid, signal.SIGKILL)
    await node.wait_static(
        "cgroups-again", lambda pod: status_of(pod, "c").get("restartCount") == 1 and status_of(pod, "c")["ready"],
        "to run again",
    )  # fmt: skip
    second = (await node.instances("cgroups-again", "c"))[0]
    assert f"{cgroup}/{second.id}" in Path(f"/proc/{second.pid}/cgroup").read_text()
    assert left_of(cgroup)[0].stat().st_ino == before


async def test_nothing_is_left_of_a_pod_that_was_taken_away(node: Node) -> None:
    cgroup = await cgroup_of(node, "cgroups-end", "burstable")
    assert left_of(cgroup)
    await node.take_away(["cgroups-end"])
    await node.agent.wait_for(lambda: not left_of(cgroup), "the cgroup to go")
    assert left_of(f"{kubepods(node)}/burstable")


async def test_a_process_that_is_left_in_the_cgroup_is_killed(node: Node) -> None:
    cgroup = await cgroup_of(node, "cgroups-leftover", "besteffort")
    stray = await a_process_in(f"{cgroup}/stray")
    await node.take_away(["cgroups-leftover"])
    assert await asyncio.wait_for(stray.wait(), WAIT_SECONDS) == -signal.SIGKILL
    await node.agent.wait_for(lambda: not left_of(cgroup), "the cgroup to go")


@pytest.mark.parametrize("parent", ["", "/burstable", "/besteffort"])
async def test_a_cgroup_of_no_pod_goes_with_what_runs_in_it(node: Node, parent: str) -> None:
    cgroup = f"{kubepods(node)}{parent}/pod5eed0000-0000-4000-8000-00000000000{len(parent)}"
    stray = await a_process_in(f"{cgroup}/container")
    assert await asyncio.wait_for(stray.wait(), WAIT_SECONDS) == -signal.SIGKILL
    await node.agent.wait_for(lambda: not left_of(cgroup), "the cgroup to go")


async def test_what_is_no_pods_is_left_alone(node: Node) -> None:
    cgroup = f"{kubepods(node)}/system"
    other = f"{kubepods(node)}/pod5eed0000-0000-4000-8000-0000000000ff"
    stray = await a_process_in(cgroup)
    orphan = await a_process_in(other)
    await asyncio.wait_for(orphan.wait(), WAIT_SECONDS)  # by then both were looked at
    assert stray.returncode is None
    stray.kill()
    await stray.wait()

    def removed() -> bool:  # the kernel may count the process for a moment after its end
        for place in left_of(cgroup):
            with suppress(OSError):
                place.rmdir()
        return not left_of(cgroup)

    await node.agent.wait_for(removed, "the cgroup to be empty")


async def test_a_podsync_that_is_killed_finds_cgroups_as_they_were_and_takes_them_away(node: Node) -> None:
    cgroup = await cgroup_of(node, "cgroups-away")
    [before] = await node.instances("cgroups-away", "c")
    pid = node.agent.kill("podsync")
    node.agent.remove_manifest("cgroups-away")
    await node.agent.wait_for(lambda: node.agent.pid_of("podsync") not in (0, pid), "podsync to come back")
    assert await cgroup_of(node, "cgroups-best", "besteffort")
    await node.agent.wait_gone("cgroups-away")
    await node.agent.wait_for(lambda: not left_of(cgroup), "the cgroup to go")
    assert not Path(f"/proc/{before.pid}").exists()
    kept = await cgroup_of(node, "cgroups-sure")
    assert (cpu_share(kept), quota(kept), memory(kept)) == (share_of(102), "10000", str(32 << 20))
    assert (await node.instances("cgroups-sure", "c"))[0].attempt == 0


async def test_a_pod_that_runs_without_its_cgroup_is_stopped_and_restarted_in_one(node: Node) -> None:
    cgroup = await cgroup_of(node, "cgroups-lost")
    [before] = await node.instances("cgroups-lost", "c")
    move_out_of(cgroup)
    assert not left_of(cgroup) and Path(f"/proc/{before.pid}").exists()
    node.agent.kill("podsync")  # the next one prepares every pod
    await node.wait_static(
        "cgroups-lost", lambda pod: status_of(pod, "c").get("restartCount") == 1 and status_of(pod, "c")["ready"],
        "to run again",
    )  # fmt: skip
    pod = await node.agent.runtime_pod("cgroups-lost")
    assert pod is not None and pod.sandboxes[0].attempt == 1
    after = (await node.instances("cgroups-lost", "c"))[0]
    assert f"{cgroup}/{after.id}" in Path(f"/proc/{after.pid}/cgroup").read_text()
    assert (cpu_share(cgroup), quota(cgroup), memory(cgroup)) == (share_of(102), "10000", str(32 << 20))
    assert not Path(f"/proc/{before.pid}").exists()
    assert (await node.instances("cgroups-sure", "c"))[0].attempt == 0
    await node.wait_event("cgroups-lost", "Killing", "Stopping container c")
    await node.wait_event("cgroups-lost", "SandboxChanged")


def move_out_of(cgroup: str) -> None:
    """Every process in the cgroup goes to the top of each tree, and the cgroup away."""
    tops = [*TREES.roots(), *([TREES.beside] if TREES.beside else [])]
    for top, place in zip(tops, TREES.places(cgroup), strict=True):
        for directory in sorted((d for d in (place, *place.rglob("*")) if d.is_dir()), reverse=True):
            for pid in (directory / "cgroup.procs").read_text().split():
                (top / "cgroup.procs").write_text(pid)
            directory.rmdir()


async def a_process_in(cgroup: str) -> asyncio.subprocess.Process:
    """A process of ours, in a cgroup that is made for it in one tree."""
    sleeper = await asyncio.create_subprocess_exec("sleep", "1000")
    place = TREES.places(cgroup)[0]
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                try:
                    place.mkdir(parents=True, exist_ok=True)
                    (place / "cgroup.procs").write_text(str(sleeper.pid))
                except OSError as error:  # podsync may remove the cgroup of no pod before the process is in it
                    if error.errno not in (errno.ENOENT, errno.ENODEV):
                        raise
                else:
                    return sleeper
                await asyncio.sleep(0)
    except BaseException:
        sleeper.kill()
        raise
