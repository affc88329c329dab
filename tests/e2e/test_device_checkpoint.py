"""A container keeps its devices when its node passes from a Go kubelet to this agent, and back.

The Go kubelet's file of devices is read and written; a device that a running container has is given to no other pod.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from bench.agents import Bulkhead, GoKubelet, go_version
from bench.site import Site
from services.podsync.adapters.allocation_bytes import read_answer
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.device_state import read_device_state, write_device_state
from services.podsync.core.checkpoints.device_takeover import Given, devices_of
from shared.kube import paths
from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.programs.device_plugin import DevicePlugin
from tests.programs.running import running_program
from tests.support.agents.behaviour import container, pod_of
from tests.support.agents.conditions import condition_of, is_ready
from tests.support.clusters.control_plane import assets
from tests.support.clusters.go_node import go_node
from tests.support.installed.lacking import lack
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

NODE, GPU = "with-devices", "example.com/gpu"
# The Go kubelet has its device plugins below /var/lib/kubelet, whatever its root directory is. That directory of the
# machine is not used: another test with a Go kubelet may remove it, and a mount on it in every namespace with it.
_IN_OWN_MOUNTS = 'mount -t tmpfs tmpfs /var/lib && mkdir -p "$1" && mount --bind "$0" "$1" && shift && exec "$@"'


class GoKubeletWithPlugins(GoKubelet):
    """Has the directory of its device plugins where this agent has it: below the home that both share."""

    def _command(self) -> list[str]:
        own = self.home / "kubelet" / "device-plugins"
        own.mkdir(parents=True, exist_ok=True)
        in_mounts = ["unshare", "--mount", "sh", "-c", _IN_OWN_MOUNTS, str(own), "/var/lib/kubelet/device-plugins"]
        return [*in_mounts, *super()._command()]


def pod_with_devices(name: str, count: int) -> Object:
    amounts = {"cpu": "10m", "memory": "32Mi", GPU: str(count)}
    pod = pod_of(name, container("c", resources={"requests": amounts, "limits": amounts}))
    pod["spec"]["nodeName"] = NODE
    return pod


class NodeWithDevices:
    """Has a node of the Go kubelet with two devices, of which the container of a pod has one. `bulkhead` shares the Go
    kubelet's home."""

    def __init__(self, site: Site, go: GoKubelet, bulkhead: Bulkhead) -> None:
        self.site, self.go, self.bulkhead = site, go, bulkhead
        self.root = go.home / "kubelet"
        self.file = self.root / "device-plugins" / "kubelet_internal_checkpoint"

    async def start(self, agent: GoKubelet | Bulkhead) -> None:
        """Start the agent, and wait until it has written the node's status with both devices."""
        before = condition_of(self.site.watch.nodes.get(NODE, {}), "Ready").get("lastHeartbeatTime")

        def written(kind: str, node: Object) -> bool:
            allocatable = node["status"].get("allocatable", {})
            is_new = condition_of(node, "Ready").get("lastHeartbeatTime") != before
            return is_ready(node) and is_new and allocatable.get(GPU) == "2"

        expected = self.site.watch.node(NODE, written, "to have two devices")
        agent.start()
        await expected.within(2 * WAIT_SECONDS)

    async def create(self, name: str, devices: int, phase: str) -> Object:
        """Create a pod with this number of devices. Return it once it is ready (phase Running) or rejected (Failed)."""

        def has_phase(kind: str, pod: Object) -> bool:
            return bool(pod.get("status", {}).get("phase") == phase) and (phase == "Failed" or is_ready(pod))

        expected = self.site.watch.pod(name, has_phase, f"to be {phase}")
        await self.site.plane.admin.create(paths.pods("default"), pod_with_devices(name, devices))
        pod: Object = (await expected.within(2 * WAIT_SECONDS)).object
        return pod

    def devices(self) -> Given:
        """Return the devices of the containers by the file."""
        return devices_of(read_device_state(self.file.read_bytes()), read_answer)[0]

    async def wait_devices(self, *pods: Object) -> Given:
        """Return the devices by the file once it has those of these pods: this agent writes it by itself."""
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while not {pod["metadata"]["uid"] for pod in pods} <= (found := self.devices()).keys():
            assert asyncio.get_running_loop().time() < deadline, found
            await asyncio.sleep(0.05)
        return found

    async def container_of(self, pod: Object) -> tuple[str, str]:
        """Return the id of the pod's container once it runs, and the devices that its environment names."""
        environment: list[bytes] = []
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            for found in (await self.site.runtime.observe())[pod["metadata"]["uid"]].containers:
                if found.state is ContainerState.RUNNING:
                    with suppress(FileNotFoundError, ProcessLookupError):  # the container has ended meanwhile
                        environment = Path(f"/proc/{found.pid}/environ").read_bytes().split(b"\0")
                    for variable in environment:
                        if variable.startswith(b"GPU_IDS="):
                            return found.id, variable.partition(b"=")[2].decode()
            await asyncio.sleep(0.1)
        raise AssertionError(f"the container names no devices in its environment: {environment}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[NodeWithDevices]:
    folder = assets()
    if not go_version(folder):
        lack("no Go kubelet beside the control plane: make assets, or set KUBEBUILDER_ASSETS to a folder with one")
    async with go_node(folder, NODE, GoKubeletWithPlugins) as (site, go, bulkhead):
        found = NodeWithDevices(site, go, bulkhead)
        directory = found.file.parent
        directory.mkdir(parents=True, exist_ok=True)
        # It registers whenever the socket of a kubelet is replaced.
        with running_program("device_plugin", str(directory), GPU, "--ids", "a,b"):
            await found.start(go)
            yield found


async def test_a_container_keeps_its_device_under_this_agent_and_again_under_the_go_kubelet(
    node: NodeWithDevices,
) -> None:
    held = await node.create("held", 1, "Running")
    before = await node.container_of(held)
    content, of_go = node.file.read_bytes(), node.devices()
    state = PlacementFiles(node.root).read_devices()
    assert state is not None and sorted(state.registered[GPU]) == ["a", "b"]
    assert write_device_state(state) == content
    [given] = of_go[held["metadata"]["uid"]]["c"]
    assert given.ids == {before[1]} and given.setup is not None and given.setup.envs == {"GPU_IDS": before[1]}

    await asyncio.to_thread(node.go.stop)
    await node.start(node.bulkhead)
    rejected = await node.create("no-room-here", 2, "Failed")
    assert "example.com/gpu" in rejected["status"]["message"]
    second = await node.create("second", 1, "Running")
    second_before = await node.container_of(second)
    assert await node.container_of(held) == before
    assert {before[1], second_before[1]} == {"a", "b"}
    of_bulkhead = await node.wait_devices(held, second)
    assert of_bulkhead[held["metadata"]["uid"]] == of_go[held["metadata"]["uid"]]
    calls = DevicePlugin(node.file.parent, GPU, {}).calls("Allocate")
    assert calls == [[before[1]], [second_before[1]]]

    await asyncio.to_thread(node.bulkhead.stop)
    assert node.devices() == of_bulkhead
    await node.start(node.go)
    rejected = await node.create("no-room-there", 1, "Failed")
    assert "example.com/gpu" in rejected["status"]["message"]
    assert await node.container_of(held) == before
    # The older kubelet makes containers of newer ones anew, because it has another hash of their spec.
    assert (await node.container_of(second))[1] == second_before[1]
    assert node.devices() == of_bulkhead
