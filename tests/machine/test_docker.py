"""A node whose pods run in Debian's Docker behind the shim: systemd as process 1, its cgroup driver, and cgroup v2. The
tests are one plan, in this order."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.machine.joined import MachineCluster
from tests.machine.root import cached_root
from tests.support.agents.behaviour import status_of
from tests.support.agents.conditions import is_ready
from tests.support.machines.installed_node import IMAGES, PAUSE
from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import archive, read_busybox

pytestmark = [
    pytest.mark.root, pytest.mark.night, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(2400),
]  # fmt: skip

SECONDS = 5 * WAIT_SECONDS
MI = 1024 * 1024
COUNT = "trap 'exit 0' TERM; i=0; while true; do echo line $((i+=1)); sleep 1; done"
# Its first process goes on until it is told to end: containerd may lose the event of a kill together with the cgroup.
OVER_ITS_LIMIT = "head -c 200000000 /dev/zero | tail; until [ -e /end ]; do sleep 1; done; exit 137"
NETWORK = {
    "cniVersion": "0.4.0", "name": "pods",
    "plugins": [{
        "type": "bridge", "bridge": "pods", "isGateway": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]},
    }],
}  # fmt: skip


class DockerNode(MachineCluster):
    """A machine with Docker, which joins when it is ready for that."""

    own_document = {
        "apiVersion": "bulkhead/v1alpha1",
        "kind": "BulkheadConfiguration",
        "docker": {"enabled": True, "sandboxImage": PAUSE.name, "cniBinDir": "/usr/lib/cni"},
    }

    def prepare(self) -> None:
        """Give the machine a network for pods, and Docker its configuration and the images."""
        self.machine.write("/etc/cni/net.d/10-pods.conflist", json.dumps(NETWORK))
        self.restart_docker(live_restore=False)
        for number, image in enumerate(IMAGES):
            (self.machine.shared / f"image-{number}.tar").write_bytes(archive(image, *read_busybox()))
            self.machine.must("docker", "load", "--input", f"/host/image-{number}.tar")

    def restart_docker(self, *, live_restore: bool) -> None:
        """Restart Docker as an operator does, with or without live-restore."""
        options = {"exec-opts": ["native.cgroupdriver=systemd"], "bridge": "none", "iptables": False}
        self.machine.write("/etc/docker/daemon.json", json.dumps({**options, "live-restore": live_restore}))
        self.machine.call("systemctl", "reset-failed", "docker")
        self.machine.must("systemctl", "restart", "docker")

    async def wait_running(self, other_than: str = "") -> str:
        """Wait until the container of `web` is Ready and runs in Docker; return its id there."""

        async def running() -> str:
            pod = await self.get_pod("web")
            container = str(status_of(pod or {}, "main").get("containerID", "")).removeprefix("docker://")
            if pod is None or not is_ready(pod) or container in ("", other_than):
                return ""
            inspect = ("docker", "inspect", "--format", "{{.State.Running}}", container)
            return container if self.machine.call(*inspect).stdout.strip() == "true" else ""

        container: str = await self.wait_for(running, "another container of web to run", SECONDS, every=1.0)
        return container

    async def restarts(self) -> int:
        """Return how often the container of `web` was started again."""
        return int(status_of(await self.get_pod("web") or {}, "main")["restartCount"])

    def exec(self, *command: str) -> str:
        """Run a command in the container of `web`."""
        return self.plane.kubectl("exec", "web", "--", *command).stdout

    def lines(self) -> list[int]:
        """The numbers of the lines in the log of `web`."""
        log = self.plane.kubectl("logs", "web").stdout
        return [int(line.removeprefix("line ")) for line in log.splitlines()]

    async def wait_further_lines(self, seen: int) -> list[int]:
        """Wait for lines beyond so many, and return all."""

        async def more() -> list[int]:
            lines = await asyncio.to_thread(self.lines)
            return lines if len(lines) > seen else []

        found: list[int] = await self.wait_for(more, f"more than {seen} lines", SECONDS, every=1.0)
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(package: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DockerNode]:
    root, directory = cached_root("install", "docker.io"), tmp_path_factory.mktemp("docker")
    async with DockerNode(directory, root=root, package=package, join=False) as running:
        try:
            running.prepare()
            await running.join()
            yield running
        finally:
            print(running.machine.last_lines())


def pod_with(node: DockerNode, name: str, script: str, limits: Object, **spec: Any) -> Object:
    pod = node.pod(name, "sh", "-c", script, **spec)
    pod["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
    return pod


async def test_limits_of_a_container_are_in_its_cgroup_below_the_slice_of_its_pod(node: DockerNode) -> None:
    machine = node.machine
    await node.create(pod_with(node, "web", COUNT, {"memory": "64Mi", "cpu": "500m"}))
    container = await node.wait_running()
    process = machine.must("docker", "inspect", "--format", "{{.State.Pid}}", container).strip()
    cgroup = machine.must("cat", f"/proc/{process}/cgroup").strip().removeprefix("0::")
    parts = cgroup.split("/")
    assert parts[1] == "kubepods.slice" and parts[-1] == f"docker-{container}.scope", cgroup
    assert parts[-2].startswith("kubepods-pod") and parts[-2].endswith(".slice"), cgroup
    values = [machine.must("cat", f"/sys/fs/cgroup{cgroup}/{file}").strip() for file in ("memory.max", "cpu.max")]
    assert values == [str(64 * MI), "50000 100000"]


async def test_commands_and_logs_come_through_the_api_server(node: DockerNode) -> None:
    assert node.exec("sh", "-c", "echo inside; hostname") == "inside\nweb\n"
    lines = await node.wait_further_lines(3)
    assert lines == list(range(1, len(lines) + 1))


async def test_a_restart_of_docker_without_live_restore_starts_containers_again(node: DockerNode) -> None:
    before = await node.wait_running()
    node.machine.must("systemctl", "restart", "docker")
    await node.wait_running(other_than=before)
    # Docker serves requests while it ends containers: a start in a sandbox that has just ended fails, and counts.
    assert await node.restarts() in (1, 2)
    lines = await node.wait_further_lines(1)
    assert lines == list(range(1, len(lines) + 1))


async def test_a_restart_of_docker_with_live_restore_changes_nothing_and_loses_no_line(node: DockerNode) -> None:
    ended = await node.wait_running()
    node.restart_docker(live_restore=True)  # the end of the one without it
    before = await node.wait_running(other_than=ended)
    restarts = await node.restarts()
    node.machine.must("systemctl", "restart", "docker")
    seen = len(await node.wait_further_lines(1))
    lines = await node.wait_further_lines(seen + 2)
    assert lines == list(range(1, len(lines) + 1))
    assert (await node.wait_running(), await node.restarts()) == (before, restarts)
    assert node.exec("echo", "inside") == "inside\n"


async def test_a_container_of_which_the_kernel_has_ended_a_process_for_its_memory_says_so(node: DockerNode) -> None:
    pod = pod_with(node, "eater", OVER_ITS_LIMIT, {"memory": "24Mi", "cpu": "100m"}, restartPolicy="Never")
    await node.create(pod)
    await node.wait_served("eater", seconds=SECONDS)

    async def killed() -> bool:  # Docker shows it only at the end of the container
        return "Killed" in (await asyncio.to_thread(node.plane.kubectl, "logs", "eater")).stdout

    await node.wait_for(killed, "the kernel to end the process", SECONDS, every=1.0)
    node.plane.kubectl("exec", "eater", "--", "touch", "/end")
    pod = await node.wait_pod("eater", lambda p: p["status"].get("phase") == "Failed", "to fail", SECONDS)
    ended = status_of(pod, "main")["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137), ended
    await node.delete_pod("eater")
    await node.wait_gone("eater", seconds=SECONDS)


@pytest.mark.parametrize("way", ["reboot", "cut"])
async def test_a_pod_is_back_after_a_reboot_and_after_a_power_cut(node: DockerNode, way: str) -> None:
    before = await node.wait_running()
    await asyncio.to_thread(getattr(node.machine, way))
    await node.wait_running(other_than=before)
    assert node.exec("hostname") == "web\n"
    recorded = "ls /var/lib/bulkhead/dockershim/networks | wc -l"
    await asyncio.to_thread(node.machine.wait_until, f"[ $({recorded}) = 1 ]")  # that of the sandbox before is released
