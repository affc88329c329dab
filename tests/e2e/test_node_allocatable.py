"""What a node keeps for itself is out of its pods' reach: kubepods under reservations, and the limit of processes."""

from pathlib import Path

import pytest

from bus.messages.streams import SERVICES
from services.podsync.adapters.cgroups import cgroup_files, cgroup_removal
from shared.host.cgroup_layout import find_hierarchies, processes_in
from tests.support.agents.behaviour import container, pod_of
from tests.support.agents.world import World
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

RESERVED = {
    "systemReserved": {"cpu": "250m", "memory": "1Gi", "pid": "1000"},
    "kubeReserved": {"cpu": "250m", "memory": "512Mi"},
    "podPidsLimit": 24,
}
# The shell that may start no more of them ends; the container does not, for it starts nothing itself.
CROWD = "(for i in $(seq 60); do sleep 1000 & done) & exec sleep 1000000"


def value(cgroup: str, controller: str, v1: str, v2: str) -> int:
    """The number in the file of either version."""
    trees = find_hierarchies()
    if trees.unified is not None:
        return int((trees.unified / cgroup.strip("/") / v2).read_text())
    return int((trees.by_controller[controller] / cgroup.strip("/") / v1).read_text())


def machine(key: str) -> int:
    """A line of /proc/meminfo in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


async def test_pods_get_what_is_left_and_a_crowd_of_processes_stays_within_its_limit() -> None:
    async with World(config=RESERVED) as world:
        kubepods = f"/{world.home.path.name}/kubepods"
        pids = min(int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max"))
        world.put_manifest("crowd", pod_of("crowd", container("c", CROWD)))
        pod = await world.wait_running("crowd")
        await world.wait_for(
            lambda: "Updated Node Allocatable limit across pods" in world.log_of("status"), "the event"
        )
        left = machine("MemTotal") - (3 << 29)
        assert value(kubepods, "memory", "memory.limit_in_bytes", "memory.max") == left
        assert value(kubepods, "pids", "pids.max", "pids.max") == pids - 1000
        cgroup = f"{kubepods}/besteffort/pod{pod.uid}"
        assert value(cgroup, "pids", "pids.max", "pids.max") == 24

        def crowded() -> bool:
            return value(cgroup, "pids", "pids.current", "pids.current") >= 20

        await world.wait_for(crowded, "a crowd")
        assert value(cgroup, "pids", "pids.current", "pids.current") <= 24
        world.remove_manifest("crowd")
        await world.wait_gone("crowd")


async def test_without_enforcement_pods_may_have_the_whole_machine() -> None:
    async with World(config={**RESERVED, "enforceNodeAllocatable": ["none"]}) as world:
        kubepods = f"/{world.home.path.name}/kubepods"
        await world.wait_for(
            lambda: "Updated Node Allocatable limit across pods" in world.log_of("status"), "the event"
        )
        assert value(kubepods, "memory", "memory.limit_in_bytes", "memory.max") == machine("MemTotal")


async def test_the_reservation_of_daemons_is_enforced_on_their_cgroup_when_it_exists() -> None:
    trees, reserved = find_hierarchies(), {"cpu": "500m", "memory": "256Mi", "pid": "500"}
    async with World(start=False) as world:
        cgroup = f"/{world.home.path.name}-daemons"
        world.write_config(
            systemReserved=reserved,
            systemReservedCgroup=cgroup,
            enforceNodeAllocatable=["pods", "system-reserved"],
        )
        try:
            cgroup_files.make(trees, cgroup)
            await world.start()
            text = f"Updated limits on system reserved cgroup {cgroup}"
            await world.wait_for(lambda: text in world.log_of("status"), "the event")
            assert value(cgroup, "memory", "memory.limit_in_bytes", "memory.max") == 256 << 20
            assert value(cgroup, "pids", "pids.max", "pids.max") == 500
            assert value(cgroup, "cpu", "cpu.shares", "cpu.weight") == (512 if trees.unified is None else 20)
        finally:
            cgroup_removal.remove(trees, cgroup)


async def test_every_process_of_the_agent_is_in_the_cgroup_of_the_kubelet_also_after_a_kill() -> None:
    trees, cgroup = find_hierarchies(), ""
    root = trees.unified or trees.by_controller["memory"]
    try:
        async with World(start=False) as world:
            cgroup = f"/{world.home.path.name}-agent"
            world.write_config(kubeletCgroups=cgroup)
            await world.start()

            def placed() -> bool:
                agent = {world.pid_of(service) for service in SERVICES} | {world.supervisord_pid}
                return agent <= set(processes_in(root / cgroup.strip("/")))

            await world.wait_for(placed, "the agent in its cgroup", 2 * WAIT_SECONDS)
            await world.wait_back("sources", world.kill("sources"))
            await world.wait_for(placed, "the restarted process in the cgroup", 2 * WAIT_SECONDS)
    finally:
        if cgroup:
            cgroup_removal.remove(trees, cgroup)
