"""The Go kubelet's file of exclusive CPUs: this agent reads what it wrote, and it starts with what this agent writes.

A container keeps its CPU when the node changes hands. Where the Go kubelet refuses a file, this agent says the same
about it.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from bench.agents import Bulkhead, GoKubelet, go_version
from bench.errors import BenchError
from bench.site import Site
from bench.watch import ready
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.cpu_state import CpuState, read_cpu_state, write_cpu_state
from services.podsync.core.checkpoints.start_checks import cpu_conflict, start_error
from services.podsync.core.checkpoints.takeover import cpu_state_of, placements_of
from shared.errors import OperatorError
from shared.host.machine_topology import read_machine_topology
from shared.kube import paths
from shared.model.objects import Object
from tests.support.agents.behaviour import container, pod_of
from tests.support.agents.conditions import condition_of, is_ready
from tests.support.clusters.control_plane import assets
from tests.support.clusters.go_node import go_node
from tests.support.installed.lacking import lack
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

NODE = "pinned"
STATIC = {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "500m"}}
RESERVED = frozenset({0})  # half a CPU is one, and the first one is taken
TOPOLOGY = read_machine_topology()


def guaranteed_pod(name: str, cpus: int) -> Object:
    amounts = {"cpu": str(cpus), "memory": "32Mi"}
    pod = pod_of(name, container("c", resources={"requests": amounts, "limits": amounts}))
    pod["spec"]["nodeName"] = NODE
    return pod


class Pinned:
    """Has a node of the Go kubelet with the static policy, and a pod that has a CPU of its own. `bulkhead` shares the
    Go kubelet's home."""

    def __init__(self, site: Site, go: GoKubelet, bulkhead: Bulkhead) -> None:
        self.site, self.go, self.bulkhead = site, go, bulkhead
        self.root = go.home / "kubelet"
        self.file = self.root / "cpu_manager_state"
        self.uid = ""

    async def start(self, agent: GoKubelet | Bulkhead) -> None:
        """Start the agent, and wait until it has written the node's status."""
        before = condition_of(self.site.watch.nodes[NODE], "Ready").get("lastHeartbeatTime")

        def written(kind: str, node: Object) -> bool:
            return is_ready(node) and condition_of(node, "Ready").get("lastHeartbeatTime") != before

        expected = self.site.watch.node(NODE, written, "to be Ready again")
        agent.start()
        await expected.within(2 * WAIT_SECONDS)

    async def reject(self, name: str, cpus: int) -> Object:
        """Create a pod with this request for which there is no room. Return its status."""

        def is_rejected(kind: str, pod: Object) -> bool:
            return bool(pod.get("status", {}).get("phase") == "Failed")

        rejected = self.site.watch.pod(name, is_rejected, "to be rejected")
        await self.site.plane.admin.create(paths.pods("default"), guaranteed_pod(name, cpus))
        status: Object = (await rejected.within(2 * WAIT_SECONDS)).object["status"]
        return status

    async def held(self) -> tuple[str, frozenset[int]]:
        """Return the id of the container that runs, and the CPUs on which the kernel lets it run."""
        [container] = (await self.site.runtime.observe())[self.uid].containers
        return container.id, frozenset(os.sched_getaffinity(container.pid))

    async def refused(self, content: bytes) -> str:
        """Start the Go kubelet with this file. Return what it printed until it ended by itself."""
        self.file.write_bytes(content)
        printed = self.go.log.stat().st_size
        self.go.start()
        deadline = asyncio.get_running_loop().time() + 2 * WAIT_SECONDS
        with pytest.raises(BenchError, match="ended with"):
            while asyncio.get_running_loop().time() < deadline:
                self.go.check_alive()
                await asyncio.sleep(0.05)
        return self.go.log.read_bytes()[printed:].decode(errors="replace")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pinned() -> AsyncIterator[Pinned]:
    folder = assets()
    if not go_version(folder):
        lack("no Go kubelet beside the control plane: make assets, or set KUBEBUILDER_ASSETS to a folder with one")
    if len(TOPOLOGY.cpus) < 2:
        lack("one CPU, and a CPU of its own for a container takes two")
    async with go_node(folder, NODE) as (site, go, bulkhead):
        config = go.home / "kubelet.yaml"
        config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), **STATIC}))
        expected = site.watch.node(NODE, ready, "to be Ready")
        go.start()
        await expected.within(2 * WAIT_SECONDS)
        held = site.watch.pod("held", ready, "to be Ready")
        made = await site.plane.admin.create(paths.pods("default"), guaranteed_pod("held", 1))
        await held.within(2 * WAIT_SECONDS)
        node = Pinned(site, go, bulkhead)
        node.uid = made["metadata"]["uid"]
        yield node


async def test_the_file_of_the_go_kubelet_is_read_and_written_byte_for_byte(pinned: Pinned) -> None:
    content = pinned.file.read_bytes()
    state = PlacementFiles(pinned.root).read_cpu()
    assert state is not None
    [given] = state.containers[pinned.uid].values()
    assert state == CpuState(
        policy="static", shared_pool=TOPOLOGY.all_cpus - given, containers={pinned.uid: {"c": given}}
    )
    assert len(given) == 1
    assert not given & RESERVED
    assert cpu_conflict(state, policy="static", all_cpus=TOPOLOGY.all_cpus, reserved=RESERVED) is None
    assert write_cpu_state(cpu_state_of("static", state.shared_pool, placements_of(state, None))) == content


async def test_the_container_keeps_its_cpu_under_this_agent_and_again_under_the_go_kubelet(pinned: Pinned) -> None:
    before, (container_id, cpus) = read_cpu_state(pinned.file.read_bytes()), await pinned.held()
    assert before.containers == {pinned.uid: {"c": cpus}}
    await asyncio.to_thread(pinned.go.stop)
    await pinned.start(pinned.bulkhead)
    status = await pinned.reject("no-room-here", len(TOPOLOGY.cpus) - len(RESERVED))
    assert "not enough cpus available to satisfy request" in status["message"]
    assert await pinned.held() == (container_id, cpus)
    assert read_cpu_state(pinned.file.read_bytes()) == before
    await asyncio.to_thread(pinned.bulkhead.stop)
    pinned.file.unlink()
    PlacementFiles(pinned.root).write_cpu(cpu_state_of("static", before.shared_pool, placements_of(before, None)))
    await pinned.start(pinned.go)
    status = await pinned.reject("no-room-there", len(TOPOLOGY.cpus) - len(RESERVED))
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "not enough cpus available to satisfy request" in status["message"]
    assert await pinned.held() == (container_id, cpus)
    assert read_cpu_state(pinned.file.read_bytes()) == before


@pytest.mark.parametrize("case", ["checksum", "policy", "reserved", "CPU that is gone", "overlap"])
async def test_what_the_go_kubelet_refuses_is_refused_with_its_words(pinned: Pinned, case: str) -> None:
    await asyncio.to_thread(pinned.go.stop)
    taken = {pinned.uid: {"c": frozenset({1})}}
    pool = TOPOLOGY.all_cpus - {1}
    gone = max(TOPOLOGY.all_cpus) + 1
    whole = write_cpu_state(CpuState(policy="static", shared_pool=pool, containers=taken))
    content = {
        "checksum": whole.replace(b'"c":"1"', b'"d":"1"'),
        "policy": write_cpu_state(CpuState(policy="none")),
        "reserved": write_cpu_state(CpuState(policy="static", shared_pool=TOPOLOGY.all_cpus - RESERVED)),
        "CPU that is gone": write_cpu_state(CpuState(policy="static", shared_pool=pool | {gone}, containers=taken)),
        "overlap": write_cpu_state(CpuState(policy="static", shared_pool=pool | {1}, containers=taken)),
    }[case]
    printed = await pinned.refused(content)
    ours = our_words(pinned.root)
    assert ours.startswith("could not restore state from checkpoint: ")
    assert f'please drain this node and delete the CPU manager checkpoint file "{pinned.file}"' in ours
    said = ours.removeprefix("could not restore state from checkpoint: ").partition(", please drain")[0]
    assert said.partition(": its checksum")[0] in printed


def our_words(root: Path) -> str:
    """Return the line with which this agent refuses the file."""
    files = PlacementFiles(root)
    try:
        state = files.read_cpu()
    except OperatorError as error:
        return str(error)
    assert state is not None
    conflict = cpu_conflict(state, policy="static", all_cpus=TOPOLOGY.all_cpus, reserved=RESERVED)
    assert conflict is not None
    return str(start_error(conflict, "CPU", str(files.cpu_path)))
