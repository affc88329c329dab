"""A cluster with a CSI driver that plays its mounts, for service tests of volume."""

import asyncio
import contextlib
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState, PodVolumes
from bus.messages.sources import ChangedObject
from bus.messages.status import PatchClaimStatus, PatchedClaim, RequestToken
from bus.messages.streams import PLUGINS_REGISTERED
from bus.messages.volume import MountedVolume, VolumeState
from services.volume.adapters import csi_block_directories, root_dir
from services.volume.adapters.block_maps import make_link
from services.volume.adapters.csi_block_directories import FOLDER
from services.volume.controllers import claim_reads
from services.volume.core.mounting import orphans
from services.volume.core.operations import operation_backoff
from services.volume.core.registration import plugin_registry
from services.volume.plugins import csi_block, csi_staging
from shared.model.frozen_copy import replace
from tests.fakes.csi_driver import EXPAND, STAGE, STATS, CsiDriver
from tests.fakes.followed import FollowedStream
from tests.service.volume.cluster import Cluster
from tests.service.volume.node import without_device_plugins
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.volume.claims import CLAIM, PV, claim, volume

DRIVER = "hostpath.csi.k8s.io"
CSI_DRIVER = f"CSIDriver//{DRIVER}"


class CsiCluster(Cluster):
    """A cluster with one driver, whose volume `data` a claim names; pods may have it inline as well."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.versions = itertools.count(1)
        self.patches: list[Any] = []  # of the claim's status
        self.registered = FollowedStream(self.podsync, PLUGINS_REGISTERED)
        self.driver = self.new_driver()
        self.driver.volume("data").mkdir(parents=True)
        self.csi_driver(attachRequired=False)

    def new_driver(self, *capabilities: str) -> CsiDriver:
        """A process of the driver, which keeps its state."""
        return CsiDriver(self.root, self.root.parent / "driver", capabilities=capabilities or (STAGE, STATS, EXPAND))

    def csi_driver(self, **spec: Any) -> None:
        """The CSIDriver is this from now on."""
        version = str(next(self.versions))
        self.objects[CSI_DRIVER] = {"metadata": {"name": DRIVER, "resourceVersion": version}, "spec": spec}
        if hasattr(self, "changed"):
            self.changed.put(CSI_DRIVER, ChangedObject(resource_version=version))

    def bind(self, *, block: bool = False, **csi: Any) -> None:
        """The claim is bound to the volume `data` of the driver."""
        mode = {"volumeMode": "Block"} if block else {}
        found = volume(csi={"driver": DRIVER, "volumeHandle": "data", **csi}, **mode)
        found["spec"].setdefault("accessModes", ["ReadWriteOnce"])
        self.objects[PV] = found
        self.objects[CLAIM] = claim()

    async def start_status(self) -> None:
        bus = self.network.bus("status")
        bus.answer(RequestToken, self._issue)
        bus.answer(PatchClaimStatus, self._patch)
        await bus.start()

    async def _patch(self, request: PatchClaimStatus) -> PatchedClaim:
        """As the API server does it."""
        found = self.objects[f"PersistentVolumeClaim/{request.namespace}/{request.name}"]
        metadata, status = found["metadata"], found["status"]
        if request.resource_version != metadata["resourceVersion"]:
            return PatchedClaim(error="the object has been modified")
        self.patches.append(request.status)
        for field, value in request.status.items():
            if field == "conditions":
                old = {each["type"]: each for each in status.get("conditions", [])}
                for each in value:
                    old.pop(each["type"], None)
                    if "$patch" not in each:
                        old[each["type"]] = each
                status["conditions"] = list(old.values())
            else:
                merged = {**status.get(field, {}), **value}
                status[field] = {key: each for key, each in merged.items() if each is not None}
        metadata["resourceVersion"] = f"patched-{len(self.patches)}"
        return PatchedClaim(resource_version=metadata["resourceVersion"])

    def set_claim(self, version: str, **status: Any) -> None:
        """The claim has this status besides its phase from now on, and its volume 2Gi."""
        self.objects[CLAIM] = claim()
        self.objects[CLAIM]["metadata"]["resourceVersion"] = version
        self.objects[CLAIM]["spec"]["resources"] = {"requests": {"storage": "2Gi"}}
        self.objects[CLAIM]["status"] |= status
        self.objects[PV] = {**self.objects[PV], "metadata": {"name": "pv-1", "resourceVersion": f"pv-{version}"}}
        self.objects[PV]["spec"]["capacity"] = {"storage": "2Gi"}
        for key in (CLAIM, PV):
            self.changed.put(key, ChangedObject(resource_version=self.objects[key]["metadata"]["resourceVersion"]))

    def run(
        self,
        uid: str,
        state: PodState = PodState.SYNC,
        *,
        inline: Any = None,
        other: Any = None,
        group: int | None = None,
        block: bool = False,
        selinux: Any = None,
        containers: Any = None,
    ) -> None:
        """A pod with the volume `v`; without it from TERMINATED on. `other`: its source, where that is neither the
        claim nor `inline`; `selinux`: more of its securityContext."""
        source = {"persistentVolumeClaim": {"claimName": "data"}} if inline is None else {"csi": inline}
        source = other or source
        spec = {
            "volumes": [{"name": "v", **source}],
            "containers": containers
            or [
                {"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/v"}]}
                if block
                else {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
            ],
            "serviceAccountName": "builder",
            "securityContext": {**({} if group is None else {"fsGroup": group}), **(selinux or {})},
        }
        pod = {"metadata": {"name": f"web-{uid}", "namespace": "shop", "uid": uid}, "spec": spec}
        needs = state in (PodState.SYNC, PodState.TERMINATING)
        names = ("v",) if needs else ()
        self.admitted.put(
            uid, PodVolumes(uid=uid, name=f"web-{uid}", namespace="shop", state=state, pod=pod, volumes=names)
        )

    def shown(self, uid: str) -> MountedVolume | None:
        found = self.mounted.state.get(uid)
        return next(iter(found.volumes.values()), None) if found is not None else None

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not holds():
                await asyncio.sleep(0.005)

    async def until_mounted(self, *uids: str) -> None:
        await self.until(lambda: all((v := self.shown(u)) and v.state is VolumeState.MOUNTED for u in uids))

    async def until_error(self, uid: str) -> str:
        await self.until(lambda: (v := self.shown(uid)) and v.error)
        found = self.shown(uid)
        assert found is not None
        return found.error

    async def until_nothing_is_left(self) -> None:
        """Until no mount, record or directory of a volume is there."""
        await self.until(lambda: not self.driver.mounts.table() and not self.left())

    def left(self) -> list[str]:
        """Directories of pods and of staged volumes."""
        shared = self.root / "plugins" / "kubernetes.io" / "csi"
        walks = [os.walk(self.root / "pods"), os.walk(shared)]  # which passes over what goes away meanwhile
        found = [Path(top) / name for walk in walks for top, folders, files in walk for name in [*folders, *files]]
        kept = {shared / DRIVER, *(shared / FOLDER / name for name in ("", "staging", "publish"))}
        return sorted(str(path.relative_to(self.root)) for path in found if path not in kept)

    def block_link(self, uid: str) -> Path:
        return self.root / "pods" / uid / "volumeDevices" / "kubernetes.io~csi" / "pv-1"

    def target(self, uid: str, directory: str = "pv-1") -> Path:
        return self.root / "pods" / uid / "volumes" / "kubernetes.io~csi" / directory / "mount"


def csi_cluster(path: Path, monkeypatch: pytest.MonkeyPatch) -> CsiCluster:
    """A cluster whose driver and neighbours do not run yet. `path`: a short one, for that of a socket has at most 107
    bytes."""
    without_device_plugins(monkeypatch)
    monkeypatch.setattr(root_dir, "prepare", lambda path: Path(path).mkdir(parents=True, exist_ok=True))
    monkeypatch.setattr(orphans, "ORPHAN_GRACE_SECONDS", 0.05)
    for room in (operation_backoff, claim_reads, plugin_registry):  # the tests wait for what a retry does, not for it
        monkeypatch.setattr(room, "RETRIES", replace(room.RETRIES, initial=0.05))
    cluster = CsiCluster(path)

    def is_mount_point(path: Path) -> bool:  # the driver may be another one by then
        return cluster.driver.mounts.is_mounted(path)

    monkeypatch.setattr(csi_staging, "is_mount_point", is_mount_point)
    monkeypatch.setattr(csi_block_directories, "is_mount_point", is_mount_point)
    monkeypatch.setattr(csi_block, "is_block_device", lambda path: Path(path).exists())
    monkeypatch.setattr(csi_block, "map_device", _map_device)
    monkeypatch.setattr(csi_block, "unmap_device", lambda global_map, uid: (global_map / uid).unlink(missing_ok=True))
    return cluster


def _map_device(device: str, global_map: Path, uid: str, link: Path) -> None:
    """As `block_maps.map_device`, without a mount and a loop device."""
    make_link(link, device)
    global_map.mkdir(parents=True, exist_ok=True)
    (global_map / uid).touch()


@contextlib.asynccontextmanager
async def running_csi_cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    """A cluster in a directory of its own, until the end of the test."""
    with tempfile.TemporaryDirectory(prefix="csi") as directory:
        cluster = csi_cluster(Path(directory), monkeypatch)
        cluster.driver.start()
        await cluster.start()
        cluster.admitted.mark_complete()
        try:
            yield cluster
        finally:
            cluster.driver.stop()
