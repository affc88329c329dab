"""PersistentVolumeClaims on a real API server, whose controllers bind them: local directories, devices, block volumes.
Whatever is killed, the data stays and no mount is left."""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.volume.adapters.mounts import mount_table
from shared.host.mountinfo import below
from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.installed.lacking import require_command
from tests.support.runtime.loop_devices import devices_below, exclusive_loop_devices
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

SECONDS = 2 * WAIT_SECONDS


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """An empty loop device of 64 MiB."""
    for program in ("losetup", "mkfs.ext4", "blkid"):
        require_command(program)
    if not Path("/dev/loop-control").exists():
        pytest.skip("the kernel of this machine has no loop devices")
    image = tmp_path / "disk.img"
    image.touch()
    os.truncate(image, 64 << 20)
    with exclusive_loop_devices():
        loop = subprocess.run(
            ["losetup", "-f", "--show", str(image)], check=True, capture_output=True, text=True
        ).stdout.strip()
        yield loop
        subprocess.run(["losetup", "-d", loop], check=False)


async def create_volume(cluster: Cluster, name: str, path: str, **spec: Any) -> None:
    """A local PersistentVolume of this node, for the claim of the same name."""
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "capacity": {"storage": "64Mi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": path},
            "claimRef": {"namespace": "default", "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
            **spec,
        },
    }
    await cluster.plane.admin.create("/api/v1/persistentvolumes", made)


async def create_claim(cluster: Cluster, name: str, **spec: Any) -> None:
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            "storageClassName": "",
            "volumeName": f"pv-{name}",
            **spec,
        },
    }
    await cluster.plane.admin.create("/api/v1/namespaces/default/persistentvolumeclaims", made)


def pod(cluster: Cluster, name: str, claim: str, script: str, *, block: bool = False) -> Object:
    """Return a pod that runs the script on its volume at /data, is then ready, and sleeps."""
    made = cluster.pod(name, "sh", "-c", f"{script} && touch /done && sleep 3600")
    probe = {"exec": {"command": ["test", "-e", "/done"]}, "periodSeconds": 1, "timeoutSeconds": 60}
    made["spec"]["containers"][0]["readinessProbe"] = probe
    use = {"volumeDevices": [{"name": "v", "devicePath": "/dev/data"}]}
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    made["spec"]["containers"][0] |= use if block else mount
    made["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    return made


def mounts(cluster: Cluster, name: str) -> list[str]:
    """What is mounted below the root directory for this PersistentVolume."""
    root = str(cluster.agent.home.path)
    return [point for point in below(mount_table(), root) if f"pv-{name}" in point]


async def until_unmounted(cluster: Cluster, name: str) -> None:
    async def unmounted() -> bool:
        return not mounts(cluster, name)

    await cluster.wait_for(unmounted, f"pv-{name} is unmounted", SECONDS)


async def test_a_pod_waits_for_its_claim_and_its_data_outlives_it(cluster: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    await cluster.create(pod(cluster, "late", "late", "echo kept > /data/file"))

    async def reported() -> bool:
        events = await cluster.events_of("late")
        text = 'error processing PVC default/late: failed to fetch PVC from API server: persistentvolumeclaims "late"'
        return any(event["reason"] == "FailedMount" and text in event["message"] for event in events)

    await cluster.wait_for(reported, "an event names the claim", SECONDS)
    await create_volume(cluster, "late", str(data))
    await create_claim(cluster, "late")
    await cluster.wait_ready("late", seconds=SECONDS)
    assert (data / "file").read_text() == "kept\n"
    assert len(mounts(cluster, "late")) == 1
    await cluster.delete_pod("late")
    await cluster.wait_gone("late", seconds=SECONDS)
    await until_unmounted(cluster, "late")
    assert (data / "file").read_text() == "kept\n"


async def test_a_device_is_formatted_once_and_its_data_survives_kills_and_pods(cluster: Cluster, device: str) -> None:
    await create_volume(cluster, "disk", device)
    await create_claim(cluster, "disk")
    await cluster.create(pod(cluster, "first", "disk", "echo kept > /data/file && sync"))
    await cluster.wait_ready("first", seconds=SECONDS)
    before = mounts(cluster, "disk")
    assert len(before) == 2
    killed = cluster.agent.kill("volume")
    await cluster.create(pod(cluster, "second", "disk", "grep kept /data/file"))
    await cluster.wait_ready("second", seconds=SECONDS)
    assert set(before) < set(mounts(cluster, "disk"))
    assert cluster.agent.pid_of("volume") != killed
    for name in ("first", "second"):
        await cluster.delete_pod(name)
    cluster.agent.kill("volume")
    await cluster.wait_gone("first", "second", seconds=SECONDS)
    await until_unmounted(cluster, "disk")
    await cluster.create(pod(cluster, "third", "disk", "grep kept /data/file"))
    await cluster.wait_ready("third", seconds=SECONDS)
    await cluster.delete_pod("third")
    await cluster.wait_gone("third", seconds=SECONDS)
    await until_unmounted(cluster, "disk")


async def test_a_block_volume_is_a_device_of_the_container(cluster: Cluster, device: str) -> None:
    await create_volume(cluster, "raw", device, volumeMode="Block")
    await create_claim(cluster, "raw", volumeMode="Block")
    script = "test -b /dev/data && echo kept | dd of=/dev/data conv=fsync"
    await cluster.create(pod(cluster, "writer", "raw", script, block=True))
    await cluster.wait_ready("writer", seconds=SECONDS)
    cluster.agent.kill("volume")
    await cluster.delete_pod("writer")
    await cluster.wait_gone("writer", seconds=SECONDS)
    await until_unmounted(cluster, "raw")
    await cluster.create(pod(cluster, "reader", "raw", "head -c 4 /dev/data | grep kept", block=True))
    await cluster.wait_ready("reader", seconds=SECONDS)
    await cluster.delete_pod("reader")
    await cluster.wait_gone("reader", seconds=SECONDS)
    await until_unmounted(cluster, "raw")

    async def detached() -> bool:
        return not devices_below(cluster.agent.home.path)

    await cluster.wait_for(detached, "every loop device of the agent to be detached", SECONDS)
