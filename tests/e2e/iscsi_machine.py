"""A machine whose iSCSI disks are loop devices: a double of iscsiadm logs in to its targets (tests/programs)."""

import base64
import io
import json
import os
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters import iscsi_initiator
from services.volume.adapters.mounts import mount_table
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.programs import ProgramResult
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import FoundObject, SetUpInputs
from services.volume.core.operations.outcome import PluginEvent
from services.volume.core.specs.iscsi_volume import IscsiDisk
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, VolumeSpec
from services.volume.plugins.iscsi import IscsiPlugin
from services.volume.plugins.registry import persistent_volume_spec, volume_spec
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import below
from shared.time.clock import SystemClock
from tests.programs import iscsiadm
from tests.support.runtime.loop_devices import devices_below

IQN = "iqn.2026-11.com.example:t"
PORTAL = "10.77.0.1:3260"
PROGRAMS = Path(__file__).parents[1] / "programs"


class IscsiMachine:
    """One root directory, one target with a disk as LUN 0, and new processes of volume. `programs`: iscsiadm is a
    program; else it is called in this process, which is much faster."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *, programs: bool) -> None:
        self.root, self.world = directory / "root", directory / "machine"
        self.directories = PodDirectories(str(self.root))
        path = directory / "programs"
        for made in (self.root, self.world, path):
            made.mkdir()
        (path / "iscsiadm").symlink_to(PROGRAMS / "iscsiadm.py")
        script = f'echo "$@" >> {self.world}/multipath\nrm -r {self.world}/sys/block/dm-0\n'
        (path / "multipath").write_text(f"#!/bin/sh\n{script}")
        (path / "multipath").chmod(0o755)
        monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
        monkeypatch.setenv("ISCSI_MACHINE", str(self.world))
        monkeypatch.setattr(IscsiPlugin, "machine", self.world)
        if not programs:
            monkeypatch.setattr(iscsi_initiator, "run_with_helpers", self._run)
        self.image = directory / "disk.img"
        self.image.write_bytes(b"")
        os.truncate(self.image, 64 << 20)
        self.device = output("losetup", "-f", "--show", str(self.image))
        self.reported: list[PluginEvent] = []
        self.targets: dict[str, Any] = {PORTAL: {"iqn": IQN, "luns": {"0": Path(self.device).name}}}
        self.offer()

    def _run(self, program: str, *words: str, **_: object) -> ProgramResult:
        assert program == "iscsiadm"
        shown = io.StringIO()
        with redirect_stdout(shown):
            code = iscsiadm.main(list(words), self.world)
        return ProgramResult(code, " ".join(shown.getvalue().split()))

    def offer(self) -> None:
        """Let the storage have `targets`."""
        (self.world / "targets.json").write_text(json.dumps(self.targets))

    @property
    def plugin(self) -> IscsiPlugin:
        """As a new process has it."""
        plugin = IscsiPlugin(self.directories, SystemClock())
        plugin.report = self.reported.append
        return plugin

    def calls(self) -> list[str]:
        """The calls of iscsiadm since the last look, without what all of them have."""
        log = self.world / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line.removeprefix("-m ") for line in lines]

    def database(self) -> Any:
        """What iscsiadm has noted."""
        return json.loads((self.world / "database.json").read_text())

    def sessions(self) -> list[str]:
        return sorted(entry.name for entry in (self.world / "sys/class/iscsi_session").glob("session*"))

    def start(self, uid: str, spec: VolumeSpec, secret: dict[str, str] | None = None) -> Path:
        """Give the volume to a pod."""
        name, source = spec.key.rpartition("/")[2], spec.source
        assert isinstance(source, IscsiDisk)
        gathered = SetUpInputs(
            objects={
                ObjectKey("Secret", "shop", "s"): FoundObject(
                    {"data": {key: base64.b64encode(value.encode()).decode() for key, value in (secret or {}).items()}}
                )
            }
        )
        path = self.plugin.mount_device(spec.volume_name, source, gathered)
        gathered = SetUpInputs(device_path=path)
        act = self.plugin.map_block if spec.block else self.plugin.set_up
        return Path(act(uid, name, source, gathered))

    def stop(self, uid: str) -> None:
        """Take its volumes from the pod, as the next process finds them."""
        for found in self.plugin.reconstruct(uid):
            self.plugin.tear_down(uid, found.name, RemovalProgress())
            self.plugin.unmap_block(uid, found.name)
        self.directories.remove(uid)

    def detach(self) -> None:
        """Unmount every device, as the next process finds them."""
        for found in self.plugin.reconstruct_devices():
            self.plugin.unmount_device(found.volume_name)

    def loops(self) -> list[str]:
        """The loop devices on what is below the root directory."""
        return devices_below(self.root)

    def left(self) -> list[str]:
        """What is left of all volumes."""
        mounts = [point for point in below(mount_table(), str(self.root)) if point != str(self.root)]
        files = [str(path) for path in (self.root / "plugins").rglob("*") if path.is_file() or "lun" in path.name]
        nodes = list(self.database()["node"]) if (self.world / "database.json").exists() else []
        return [*mounts, *files, *self.loops(), *self.sessions(), *nodes]


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def pod(source: dict[str, Any], **security: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", "uid": "a"}
    return {"metadata": metadata, "spec": {"securityContext": security, "volumes": [{"name": "v", "iscsi": source}]}}


def inline(*, fs_group: int | None = None, **more: Any) -> VolumeSpec:
    """An inline volume of LUN 0."""
    source = {"targetPortal": PORTAL, "iqn": IQN, "lun": 0, **more}
    found = volume_spec(pod(source, **({} if fs_group is None else {"fsGroup": fs_group})), "v", Node())
    assert isinstance(found, VolumeSpec) and isinstance(found.source, IscsiDisk), found
    return found


def persistent(mode: str = "Block", **more: Any) -> VolumeSpec:
    """A PersistentVolume of LUN 0."""
    spec = {"volumeMode": mode, "iscsi": {"targetPortal": PORTAL, "iqn": IQN, "lun": 0, **more}}
    volume = PersistentVolume(name="pv", spec=spec, annotations={}, claim={}, node=Node(labels={}))
    found = persistent_volume_spec(pod({}), volume, Node(labels={}))
    assert isinstance(found, VolumeSpec), found
    return found
