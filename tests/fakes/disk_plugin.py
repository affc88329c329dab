"""A volume plugin with a device layer, for tests: disks that pods share. A mount is a symlink, made and removed in one
system call as a mount is; it refuses what the order between devices and volumes forbids."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundDevice, FoundVolume
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, VolumeSpec
from services.volume.plugins.plugin import BlockVolumePlugin, ExpandableVolumePlugin
from services.volume.plugins.registry import PLUGINS, Plugins
from shared.files.tree_removal import RemovalProgress
from shared.model.objects import Object

_RECORD = "vol_data.json"


@dataclass(frozen=True)
class Disk:
    """A directory `<root>/disks/<name>`; `capacity`: bytes, written to `<name>.bytes` beside it."""

    name: str
    capacity: int = field(default=0, compare=False)


class DiskPlugin(BlockVolumePlugin[Disk], ExpandableVolumePlugin[Disk]):
    """`{"disk": {"name": …, "block": …, "bytes": …, "attachable": …}}` in spec.volumes."""

    name = "kubernetes.io/disk"
    persistent = True
    attachable = True

    @property
    def root(self) -> Path:
        """The root directory."""
        return self._directories.pods.parent

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec:
        """See VolumePlugin."""
        name = str(source.get("name") or "none")
        block, capacity = source.get("block") is True, source.get("bytes") or 0
        return VolumeSpec(
            plugin=cls.name,
            source=Disk(name, capacity),
            volume_name=name,
            block=block,
            capacity=capacity,
            attachable=source.get("attachable") is True,
        )

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec:
        """See VolumePlugin."""
        return cls.read(pod, persistent.name, source, Node())

    def mount_device(self, volume_name: str, source: Disk, gathered: SetUpInputs) -> str:
        """Link the disk. It fails while there is no such disk."""
        device = self._device(volume_name)
        device.mkdir(parents=True, exist_ok=True)
        _link(device / "globalmount", (self.root / "disks" / source.name).resolve(strict=True))
        self._log(f"mount device {volume_name}")
        return str(device / "globalmount")

    def unmount_device(self, volume_name: str) -> None:
        """Unlink the disk. No volume may be mounted on it."""
        device = self._device(volume_name)
        name = self.name.replace("/", "~")
        maps = self._directories.pods.glob(f"*/volumeDevices/{name}/*")
        mounts = [*self._directories.pods.glob(f"*/volumes/{name}/*/mount"), *maps]
        users = [str(mount) for mount in mounts if mount.readlink() == device / "globalmount"]
        assert not users, f"unmounted below {users}"
        (device / "globalmount").unlink(missing_ok=True)
        if device.is_dir():
            device.rmdir()
        self._log(f"unmount device {volume_name}")

    def reconstruct_devices(self) -> list[FoundDevice]:
        """See DeviceMountableVolumePlugin."""
        return [FoundDevice(self.name, device.name) for device in self._device("any").parent.glob("*")]

    def set_up(self, uid: str, volume: str, source: Disk, gathered: SetUpInputs) -> str:
        """Link the device, which must be mounted."""
        self._directories.make(uid)
        directory = self._directories.volume(uid, self.name, volume)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _RECORD).write_text(json.dumps({"volumeName": source.name}))
        assert Path(gathered.device_path).is_symlink(), "mounted on no device"
        _link(directory / "mount", Path(gathered.device_path))
        if source.capacity:
            self._resize(source, source.capacity)
        self._log(f"mount {volume} of {uid}")
        return str(directory / "mount")

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Unlink the device."""
        directory = self._directories.volume(uid, self.name, volume)
        if directory.is_dir():
            (directory / "mount").unlink(missing_ok=True)
            (directory / _RECORD).unlink(missing_ok=True)
            directory.rmdir()
            self._log(f"unmount {volume} of {uid}")

    def map_block(self, uid: str, volume: str, source: Disk, gathered: SetUpInputs) -> str:
        """Link the device, which must be mounted, below `volumeDevices`."""
        self._directories.make(uid)
        assert Path(gathered.device_path).is_symlink(), "mapped from no device"
        link = self._map(uid, volume)
        link.parent.mkdir(parents=True, exist_ok=True)
        _link(link, Path(gathered.device_path))
        self._log(f"map {volume} of {uid}")
        return str(link)

    def unmap_block(self, uid: str, volume: str) -> None:
        """Unlink the device."""
        link = self._map(uid, volume)
        if link.is_symlink():
            link.unlink()
            self._log(f"unmap {volume} of {uid}")

    def expand(self, uid: str, volume: str, source: Disk, capacity: int, gathered: SetUpInputs) -> None:
        """Write the capacity beside the disk; it fails where the disk is gone."""
        self._resize(source, capacity)
        self._log(f"expand {volume} of {uid} to {capacity}")

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """See VolumePlugin; a directory without a record never had a mount."""
        mounted = [self._found(uid, name) for name in self._directories.volumes_of(uid, self.name)]
        maps = self._map(uid, "any").parent.glob("*")
        return [*mounted, *(FoundVolume(link.name, self.name, unique_name=self._unique_name(link)) for link in maps)]

    def _resize(self, disk: Disk, capacity: int) -> None:
        directory = (self.root / "disks" / disk.name).resolve(strict=True)
        directory.with_suffix(".bytes").write_text(str(capacity))

    def _map(self, uid: str, volume: str) -> Path:
        return self._directories.pod(uid) / "volumeDevices" / self.name.replace("/", "~") / volume

    def _unique_name(self, link: Path) -> str:
        return f"{self.name}/{link.readlink().parent.name}"

    def _found(self, uid: str, volume: str) -> FoundVolume:
        record = self._directories.volume(uid, self.name, volume) / _RECORD
        text = record.read_text() if record.exists() else ""
        unique_name = f"{self.name}/{json.loads(text)['volumeName']}" if text else ""
        return FoundVolume(volume, self.name, unique_name=unique_name)

    def _device(self, volume_name: str) -> Path:
        return self.root / "plugins" / self.name / volume_name

    def _log(self, line: str) -> None:
        with (self.root / "log").open("a") as log:
            log.write(f"{line}\n")


def _link(link: Path, target: Path) -> None:
    if not link.is_symlink():
        link.symlink_to(target)


WITH_DISKS: Plugins = {**PLUGINS, "disk": DiskPlugin}
