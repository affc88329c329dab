"""Volumes of a CSI driver, and one of a FlexVolume driver, with the real API server, its attach-detach controller and
real mounts."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.kube import paths
from shared.kube.interface import PatchType
from shared.model.objects import Object
from tests.fakes.csi_driver import EXPAND, STAGE, BindMounts, CsiDriver
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [
    pytest.mark.root,
    pytest.mark.versions,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]

DRIVER = "hostpath.csi.k8s.io"
WAIT = 3 * WAIT_SECONDS
STORAGE = "/apis/storage.k8s.io/v1"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
WRITE = "echo written >> /v/file; echo begun; trap exit TERM; sleep 100000 & wait"


class Driver:
    """The driver as a process, whose sockets are in the agent's root directory."""

    def __init__(self, root: Path, state: Path) -> None:
        self.files = CsiDriver(root, state, DRIVER, mounts=BindMounts())  # reads what the process writes
        self._root, self._state = root, state
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.fakes.csi_driver", self._root, self._state, "--name", DRIVER]
        options = [
            "--capability",
            STAGE,
            "--capability",
            EXPAND,
            "--topology",
            "topology.hostpath.csi/node=here",
            "--max-volumes",
            "7",
        ]
        self._process = subprocess.Popen([*map(str, command), *options], cwd=Path(__file__).parents[2])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def mounts(self) -> list[str]:
        """Mount points of its volumes, staged and published."""
        ours = (path for path in BindMounts().table() if path.startswith(f"{self._root}/"))
        return sorted(path for path in ours if "kubernetes.io" in path and "csi" in path)


class CsiCluster:
    """A cluster whose node has the driver."""

    def __init__(self, cluster: Cluster, driver: Driver) -> None:
        self.cluster, self.driver = cluster, driver

    async def put(self, path: str, kind: str, body: Object) -> Object:
        version = "v1" if path.startswith("/api/") else "storage.k8s.io/v1"
        return await self.cluster.plane.admin.create(path, {"apiVersion": version, "kind": kind, **body})

    async def csi_driver(self, **spec: Any) -> None:
        await self.put(f"{STORAGE}/csidrivers", "CSIDriver", {"metadata": {"name": DRIVER}, "spec": spec})

    async def claim(self, name: str) -> None:
        """A claim bound to a volume of the driver; both have this name."""
        self.driver.files.volume(name).mkdir(parents=True)
        capacity = {"storage": "1Gi"}
        modes = ["ReadWriteOnce"]
        source = {"driver": DRIVER, "volumeHandle": name}
        reference = {"namespace": "default", "name": name}
        volume = {"capacity": capacity, "accessModes": modes, "csi": source, "claimRef": reference}
        volume |= {"persistentVolumeReclaimPolicy": "Retain", "storageClassName": ""}
        await self.put("/api/v1/persistentvolumes", "PersistentVolume", {"metadata": {"name": name}, "spec": volume})
        request = {"volumeName": name, "accessModes": modes, "resources": {"requests": capacity}}
        await self.put(
            CLAIMS, "PersistentVolumeClaim", {"metadata": {"name": name}, "spec": {**request, "storageClassName": ""}}
        )

    async def run(self, name: str, source: Object) -> None:
        """A pod that writes into the volume."""
        pod = self.cluster.pod(name, "sh", "-c", WRITE)
        pod["spec"]["volumes"] = [{"name": "v", **source}]
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        await self.cluster.create(pod)

    async def attach(self, name: str) -> Object:
        """As the external attacher does it: the controller's VolumeAttachment for the volume is attached."""

        async def made() -> Object | None:
            found = await self.cluster.items(f"{STORAGE}/volumeattachments")
            of_name = (each for each in found if each["spec"]["source"].get("persistentVolumeName") == name)
            return next(of_name, None)

        attachment: Object = await self.cluster.wait_for(made, "a VolumeAttachment", WAIT)
        status = {"status": {"attached": True, "attachmentMetadata": {"device": "x"}}}
        path = f"{STORAGE}/volumeattachments/{attachment['metadata']['name']}"
        await self.cluster.plane.admin.patch(f"{path}/status", status, PatchType.MERGE)
        return attachment

    async def until(self, holds: Any, what: str) -> None:
        async def look() -> bool:
            return bool(holds())

        await self.cluster.wait_for(look, what, WAIT)


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="csi-state") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def flex(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a FlexVolume driver that attaches volumes, for the node and for the controller."""
    here = tmp_path_factory.mktemp("drivers") / "acme~disk"
    here.mkdir()
    (here / "attach").touch()
    (here / "disk").symlink_to(Path(__file__).parents[1] / "programs" / "flex_driver.sh")
    return here


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def csi(tmp_path_factory: pytest.TempPathFactory, state: Path, flex: Path) -> AsyncIterator[CsiCluster]:
    plane = {"controller_manager_flags": {"flex-volume-plugin-dir": str(flex.parent)}}
    config = {"volumePluginDir": str(flex.parent)}
    async with Cluster(tmp_path_factory.mktemp("cluster"), plane=plane, config=config) as cluster:
        driver = Driver(cluster.agent.home.path / "kubelet", state)
        found = CsiCluster(cluster, driver)
        await found.csi_driver(
            attachRequired=True, podInfoOnMount=True, volumeLifecycleModes=["Persistent", "Ephemeral"]
        )
        driver.start()
        try:
            yield found
        finally:
            driver.kill()


async def test_the_driver_is_in_the_csi_node_and_on_the_node(csi: CsiCluster) -> None:
    async def written() -> Object | None:
        found = await csi.cluster.get(paths.csi_node(NODE))
        return next(iter((found or {}).get("spec", {}).get("drivers") or ()), None)

    driver = await csi.cluster.wait_for(written, "the driver in the CSINode", WAIT)
    assert driver == {
        "name": DRIVER,
        "nodeID": f"id-of-{DRIVER}",
        "topologyKeys": ["topology.hostpath.csi/node"],
        "allocatable": {"count": 7},
    }
    node = await csi.cluster.node()
    assert node["metadata"]["labels"]["topology.hostpath.csi/node"] == "here"
    assert node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"] == f'{{"{DRIVER}":"id-of-{DRIVER}"}}'


async def test_a_claim_is_attached_staged_published_and_taken_away_with_its_data_kept(csi: CsiCluster) -> None:
    await csi.claim("data")
    await csi.run("web", {"persistentVolumeClaim": {"claimName": "data"}})
    attachment = await csi.attach("data")
    assert attachment["spec"] | {"source": 0} == {"attacher": DRIVER, "nodeName": NODE, "source": 0}
    await csi.cluster.wait_ready("web", seconds=WAIT)
    (staged,) = csi.driver.files.calls("NodeStageVolume")
    assert staged["publish_context"] == {"device": "x"}
    node = await csi.cluster.node()
    assert node["status"]["volumesInUse"] == [f"kubernetes.io/csi/{DRIVER}^data"]
    assert len(csi.driver.mounts()) == 2
    file = csi.driver.files.volume("data") / "file"
    await csi.until(file.exists, "the file of the pod")

    # A killed volume finds everything again, and changes nothing.
    before = csi.driver.mounts()
    pid = csi.cluster.agent.kill("volume")
    await csi.cluster.agent.wait_back("volume", pid, seconds=WAIT_SECONDS)
    await csi.run("second", {"persistentVolumeClaim": {"claimName": "data"}})
    await csi.cluster.wait_ready("second", seconds=WAIT)
    assert set(before) < set(csi.driver.mounts())
    assert len(csi.driver.mounts()) == 3
    await csi.until(lambda: file.read_text() == "written\n" * 2, "the second pod to write")

    # A driver that was killed is registered again before the volume is taken away.
    csi.driver.kill()
    await csi.cluster.delete_pod("web")
    await csi.cluster.delete_pod("second")
    await asyncio.sleep(0)
    csi.driver.start()
    await csi.cluster.wait_gone("web", "second", seconds=WAIT)
    await csi.until(lambda: not csi.driver.mounts(), "every mount to be gone")

    async def not_in_use() -> bool:
        return not (await csi.cluster.node())["status"].get("volumesInUse")

    await csi.cluster.wait_for(not_in_use, "the volume to leave volumesInUse", WAIT)
    assert file.read_text() == "written\n" * 2


async def test_a_volume_that_has_grown_is_expanded_before_its_pod_starts(csi: CsiCluster) -> None:
    await csi.claim("grown")

    async def claim_of(phase: str, size: str) -> Object | None:
        found = await csi.cluster.get(f"{CLAIMS}/grown")
        status = (found or {}).get("status", {})
        return found if (status.get("phase"), status.get("capacity", {}).get("storage")) == (phase, size) else None

    await csi.cluster.wait_for(lambda: claim_of("Bound", "1Gi"), "the claim to be bound", WAIT)
    capacity = {"spec": {"capacity": {"storage": "2Gi"}}}
    await csi.cluster.plane.admin.patch("/api/v1/persistentvolumes/grown", capacity, PatchType.MERGE)
    resizing = {"status": {"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}}
    await csi.cluster.plane.admin.patch(f"{CLAIMS}/grown/status", resizing, PatchType.MERGE)
    await csi.run("grown", {"persistentVolumeClaim": {"claimName": "grown"}})
    await csi.attach("grown")
    await csi.cluster.wait_ready("grown", seconds=WAIT)
    claim = await csi.cluster.wait_for(lambda: claim_of("Bound", "2Gi"), "the claim to have the new size", WAIT)
    assert not claim["status"].get("conditions")
    call = csi.driver.files.calls("NodeExpandVolume")[-1]
    assert (call["volume_id"], call["capacity_range"]) == ("grown", {"required_bytes": str(2 << 30)})

    async def reported() -> bool:
        events = await csi.cluster.items("/api/v1/namespaces/default/events")
        kinds = {e["involvedObject"]["kind"] for e in events if e["reason"] == "FileSystemResizeSuccessful"}
        return kinds == {"Pod", "PersistentVolumeClaim"}

    await csi.cluster.wait_for(reported, "the events of the expansion", WAIT)
    await csi.cluster.delete_pod("grown")
    await csi.cluster.wait_gone("grown", seconds=WAIT)
    await csi.until(lambda: not csi.driver.mounts(), "every mount to be gone")


async def test_an_inline_volume_is_published_for_its_pod(csi: CsiCluster) -> None:
    await csi.run("inline", {"csi": {"driver": DRIVER}})
    await csi.cluster.wait_ready("inline", seconds=WAIT)
    call = csi.driver.files.calls("NodePublishVolume")[-1]
    assert call["volume_context"]["csi.storage.k8s.io/pod.name"] == "inline"
    assert call["volume_context"]["csi.storage.k8s.io/ephemeral"] == "true"
    assert call["target_path"] in csi.driver.mounts()
    await csi.cluster.delete_pod("inline")
    await csi.cluster.wait_gone("inline", seconds=WAIT)
    await csi.until(lambda: not csi.driver.mounts(), "every mount to be gone")


async def test_a_volume_of_a_flex_driver_is_attached_by_the_controller_mounted_and_detached(
    csi: CsiCluster, flex: Path
) -> None:
    await csi.run("flex", {"flexVolume": {"driver": "acme/disk"}})
    await csi.cluster.wait_ready("flex", seconds=WAIT)
    status = (await csi.cluster.node())["status"]
    name = "acme/disk/v"
    assert {"name": name, "devicePath": "/dev/flex"} in status["volumesAttached"] and name in status["volumesInUse"]
    assert (flex / "device").read_text() == "/dev/flex\n"
    device = csi.cluster.agent.home.path / "kubelet/plugins/kubernetes.io/flexvolume/acme/disk/mounts/v"
    await csi.until((device / "file").exists, "the file of the pod on the device")
    pid = csi.cluster.agent.kill("volume")
    await csi.cluster.agent.wait_back("volume", pid, seconds=WAIT_SECONDS)
    await csi.cluster.delete_pod("flex")
    await csi.cluster.wait_gone("flex", seconds=WAIT)

    def calls() -> list[str]:
        return [call for call in (flex / "calls").read_text().splitlines() if call in ("unmountdevice", "detach")]

    await csi.until(lambda: "detach" in calls(), "the controller to detach the volume")
    assert calls() == ["unmountdevice", "detach"] and not device.exists()
