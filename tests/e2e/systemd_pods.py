"""What test_systemd_cgroups runs where systemd is process 1: an agent and containerd with the cgroup driver systemd.

Not collected by itself. Names of slices begin with that of the agent's own cgroupRoot.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from shared.host.cgroup_layout import find_hierarchies
from shared.model.objects import Object
from shared.model.runtime import RuntimePod
from shared.podspec.resources import weight
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import container, pod_of
from tests.support.agents.world import World
from tests.support.kubeadm.world import WorldOfKubeadm
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.bootstrap.kubeconfigs import inline, kubeconfig, write
from tests.unit.kube.tls_world import Authority

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

V2 = find_hierarchies().unified is not None
SHARES, MEMORY = ("CPUWeight", "MemoryMax") if V2 else ("CPUShares", "MemoryLimit")
MEMORY_FILE = "memory.max" if V2 else "memory.limit_in_bytes"
BOTH = {"cpu": "100m", "memory": "32Mi"}
PODS = {
    "sd-sure": pod_of("sd-sure", container("c", resources={"requests": BOTH, "limits": BOTH})),
    "sd-burst": pod_of("sd-burst", container("c", resources={"requests": {"cpu": "250m"}})),
    "sd-best": pod_of("sd-best", container("c")),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World(config={"cgroupDriver": "systemd", "podPidsLimit": 50}) as running:
        for name, pod in PODS.items():
            running.put_manifest(name, pod)
        for name in PODS:
            await running.wait_running(name)
        yield running


def show(unit: str, *properties: str) -> dict[str, str]:
    lines = output_of("systemctl", "show", *(f"--property={name}" for name in properties), unit).splitlines()
    return dict(line.split("=", 1) for line in lines)


async def wait_shown(world: World, unit: str, name: str, value: str) -> None:
    """Wait until systemd shows this value of the unit's property."""
    await world.wait_for(lambda: show(unit, name) == {name: value}, f"{name} of {unit} to be {value}")


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def root_of(world: World) -> str:
    return world.home.path.name


def slice_of(world: World, uid: str, qos: str) -> str:
    parts = [root_of(world), "kubepods", *([qos] if qos else []), f"pod{uid}".replace("-", "_")]
    return "/" + "/".join("-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts)))


def cgroups_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return {names: path for _, names, path in (line.split(":", 2) for line in lines)}


def shares_of(cpu_shares: int) -> str:
    """As the slice's property and file show them: cgroup v2 has weights."""
    return str(weight(cpu_shares) if V2 else cpu_shares)


def file_of(controller: str, path: str, file: str) -> str:
    hierarchies = find_hierarchies()
    root = hierarchies.unified or hierarchies.by_controller[controller]
    return (root / path.strip("/") / file).read_text().strip()


async def pod_in(world: World, name: str) -> RuntimePod:
    pod = await world.runtime_pod(name)
    assert pod is not None
    return pod


@pytest.mark.parametrize(("name", "qos"), [("sd-sure", ""), ("sd-burst", "burstable"), ("sd-best", "besteffort")])
async def test_every_container_runs_in_a_scope_of_its_pods_slice(world: World, name: str, qos: str) -> None:
    pod = await pod_in(world, name)
    path = slice_of(world, pod.uid, qos)
    inside = cgroups_of(pod.containers[0].pid)
    for controller in ("",) if V2 else ("cpu", "memory", "pids", "cpuset", "name=systemd"):
        assert inside[controller].startswith(f"{path}/cri-containerd-{pod.containers[0].id}.scope"), inside


async def test_systemd_and_the_files_have_the_same_values(world: World) -> None:
    pod = await pod_in(world, "sd-sure")
    path = slice_of(world, pod.uid, "")
    unit = path.rpartition("/")[2]
    shown = show(unit, SHARES, "CPUQuotaPerSecUSec", MEMORY, "TasksMax", "ActiveState", "Wants")
    assert shown == {
        SHARES: shares_of(102),
        "CPUQuotaPerSecUSec": "100ms",
        MEMORY: str(32 << 20),
        "TasksMax": "50",
        "ActiveState": "active",
        "Wants": f"{root_of(world)}-kubepods.slice",
    }
    files = {
        ("cpu", "cpu.weight" if V2 else "cpu.shares"): shares_of(102),
        ("cpu", "cpu.max" if V2 else "cpu.cfs_quota_us"): "10000 100000" if V2 else "10000",
        ("memory", MEMORY_FILE): str(32 << 20),
        ("pids", "pids.max"): "50",
    }
    for (controller, file), text in files.items():
        assert file_of(controller, path, file) == text


async def test_the_qos_slices_have_their_shares(world: World) -> None:
    root = root_of(world)

    expected = {"-burstable": 256, "-besteffort": 2, "": 1024 * (os.cpu_count() or 1)}
    for qos, cpu_shares in expected.items():
        await wait_shown(world, f"{root}-kubepods{qos}.slice", SHARES, shares_of(cpu_shares))


async def test_the_values_survive_a_reload_of_systemd(world: World) -> None:
    pod = await pod_in(world, "sd-sure")
    path = slice_of(world, pod.uid, "")
    output_of("systemctl", "daemon-reload")
    assert file_of("memory", path, MEMORY_FILE) == str(32 << 20)


async def test_the_slice_of_a_pod_goes_with_it(world: World) -> None:
    pod = await pod_in(world, "sd-best")
    path = slice_of(world, pod.uid, "besteffort")
    world.remove_manifest("sd-best")
    await world.wait_gone("sd-best")
    await world.wait_for(lambda: not any(p.exists() for p in find_hierarchies().places(path)), "the cgroup to go")
    await wait_shown(world, path.rpartition("/")[2], "ActiveState", "inactive")


async def test_the_slice_of_an_unknown_pod_is_removed(world: World) -> None:
    uid = "0000aaaa-1111-2222-3333-444455556666"
    path = slice_of(world, uid, "burstable")
    unit = path.rpartition("/")[2]
    manager = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
    orphan = await asyncio.create_subprocess_exec("sleep", "1000")

    def is_inside() -> bool:  # podsync may remove the slice before the process is in it, which systemd forgets later
        with suppress(subprocess.CalledProcessError):
            output_of("busctl", "call", *manager, "StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "replace", "0", "0")
        entered = False
        for place in find_hierarchies().places(path):
            with suppress(OSError):
                (place / "cgroup.procs").write_text(str(orphan.pid))
                entered = True
        return entered

    await world.wait_for(is_inside, "the process to be in the slice")
    assert await asyncio.wait_for(orphan.wait(), WAIT_SECONDS) == -9
    await world.wait_for(lambda: not any(p.exists() for p in find_hierarchies().places(path)), "the cgroup to go")


async def test_a_podsync_that_is_killed_finds_its_slices_again(world: World) -> None:
    pod = await pod_in(world, "sd-burst")
    pid = world.kill("podsync")
    await world.wait_for(lambda: world.pid_of("podsync") not in (0, pid), "podsync to come back")
    world.put_manifest("sd-later", later())
    await world.wait_running("sd-later")
    assert Path(f"/proc/{pod.containers[0].pid}").exists()
    assert (await pod_in(world, "sd-burst")).containers[0].id == pod.containers[0].id
    for name in ("sd-later", "sd-burst", "sd-sure"):
        world.remove_manifest(name)
        await world.wait_gone(name)


async def test_kubeadms_unit_starts_it_with_the_driver_that_kubeadm_writes() -> None:
    async with WorldOfKubeadm(config={"cgroupDriver": "systemd"}, start=False) as joined:
        user = inline(Authority().issue(f"system:node:{NODE}"))  # of a cluster that is away
        write(joined.home.path / "kubelet.conf", kubeconfig(user, server="https://127.0.0.1:1"))
        joined.put_manifest("sd-joined", pod_of("sd-joined", container("c")))
        await joined.start()
        pod = await joined.wait_running("sd-joined")
        path = slice_of(joined, pod.uid, "besteffort")
        assert cgroups_of(pod.containers[0].pid)["" if V2 else "memory"].startswith(f"{path}/cri-containerd-")
        assert "Traceback" not in joined.stderr.read_text()
        assert await joined.stop_supervisord() == 0
        assert Path(f"/proc/{pod.containers[0].pid}").exists()


def later() -> Object:
    """One more Burstable pod."""
    return pod_of("sd-later", container("c", resources={"requests": {"cpu": "10m"}}))
