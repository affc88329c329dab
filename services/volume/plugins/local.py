"""Sets up local volumes: a directory or block device of the node as a PersistentVolume (volumes.md 13.4).

A device is formatted only while it is empty, mounted once below `plugins/` and bound into each pod. Clean-up unmounts
and removes empty directories: it never removes a file.
"""

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from services.volume.adapters.block_devices import (
    DEFAULT_TYPE,
    FilesystemMismatchError,
    format_and_mount,
    grow,
    is_block_device,
)
from services.volume.adapters.block_maps import map_device, remove_link, remove_map, unmap_device
from services.volume.adapters.mounts import bind_with_options, is_mount_point, mount_table, unmount
from services.volume.adapters.ownership import OwnershipChange, belongs_to_group, give_to_group
from services.volume.adapters.volume_usage import usage_of_device, usage_of_filesystem
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundDevice, FoundVolume, PluginEvent, VolumeReading
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.pod_fields import changes_group_always, fs_group
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.plugin import BlockVolumePlugin, ExpandableVolumePlugin, MeasuredVolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import containing, references
from shared.model.fields import text
from shared.model.objects import Object
from shared.pods.directory import make_directory

_MODE = 0o750


@dataclass(frozen=True)
class Local:
    """A directory or block device of the node. `filesystem`: of a device, "" = the default; `options`: sorted mount
    options; `fs_group`: a group ID; `always`: every file is given to the group at each mount."""

    path: str
    filesystem: str = ""
    options: tuple[str, ...] = field(default=(), compare=False)
    read_only: bool = False
    block: bool = False
    fs_group: int | None = None
    always: bool = True


class LocalPlugin(BlockVolumePlugin[Local], ExpandableVolumePlugin[Local], MeasuredVolumePlugin[Local]):
    """Sets up local volumes, which exist only as PersistentVolumes."""

    name = "kubernetes.io/local-volume"
    persistent = True
    mount_options = True

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> Refused:
        """Refuse the volume, because the API has no such source in spec.volumes."""
        return Refused("a local volume needs a PersistentVolume")

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec:
        """Return the spec of a local PersistentVolume."""
        local = Local(
            path=text(source.get("path")),
            filesystem=text(source.get("fsType")),
            options=tuple(sorted(set(persistent.mount_options))),
            read_only=persistent.read_only,
            block=persistent.block,
            fs_group=fs_group(pod),
            always=changes_group_always(pod),
        )
        return VolumeSpec(
            plugin=cls.name,
            source=local,
            volume_name=persistent.name,
            block=persistent.block,
            read_only=persistent.read_only,
            selinux_relabel=not persistent.read_only,
        )

    def mount_device(self, volume_name: str, source: Local, gathered: SetUpInputs) -> str:
        """Mount the device of the volume, and return its mount. Return the directory or device itself where the volume
        is a directory or a block volume. Raises OSError."""
        if ".." in source.path.split("/") or not source.path.startswith("/"):
            raise OSError(errno.EINVAL, f"invalid path `{source.path}`: must be absolute and must not contain '..'")
        if is_block_device(source.path):
            return self._device(volume_name, source)
        if source.block or not Path(source.path).is_dir():
            raise OSError(errno.EINVAL, "only directory and block device are supported")
        return source.path

    def _device(self, volume_name: str, source: Local) -> str:
        device = os.path.realpath(source.path)
        if source.block:
            return device
        target, filesystem = self._mount(volume_name), source.filesystem or DEFAULT_TYPE
        if is_mount_point(target):
            return str(target)
        make_directory(target, _MODE)
        try:
            format_and_mount(device, target, filesystem, source.options, read_only=source.read_only)
        except OSError as error:
            why = f"local: failed to mount device {device} at {target} (fstype: {filesystem}), error {error.strerror}"
            if isinstance(error, FilesystemMismatchError):
                text = f'MountVolume failed for volume "{volume_name}" {why}'
                self.report(PluginEvent("FailedMountOnFilesystemMismatch", text, persistent_volume=volume_name))
            raise OSError(error.errno, why) from error
        return str(target)

    def unmount_device(self, volume_name: str) -> None:
        """Unmount the device, unless it is still mounted elsewhere or mapped for a pod. Raises OSError."""
        target = self._mount(volume_name)
        if os.path.lexists(target):
            if others := references(mount_table(), str(target)):
                text = f'the device mount path "{target}" is still mounted by other references [{" ".join(others)}]'
                raise OSError(errno.EBUSY, text)
            _unmount(target)
            target.rmdir()
        remove_map(self._map(volume_name))

    def reconstruct_devices(self) -> list[FoundDevice]:
        """Return a device for each mount point and for each global map directory."""
        names = set[str]()
        for folder in (self._mount("any").parent, self._map("any").parent):
            if folder.is_dir():
                names |= {entry.name for entry in folder.iterdir()}
        return [FoundDevice(self.name, name) for name in sorted(names)]

    def set_up(self, uid: str, volume: str, source: Local, gathered: SetUpInputs) -> str:
        """Bind the volume into the pod's directory, give it to the pod's fsGroup, and return its path."""
        self._directories.make(uid)
        path, device = self._directories.volume(uid, self.name, volume), Path(gathered.device_path)
        if device == self._mount(volume) and not is_mount_point(device):
            raise OSError(errno.EIO, f"the device of the volume is not mounted at {device}")
        if not is_mount_point(path):
            make_directory(path, _MODE)
        bind_with_options(device, path, {*source.options, *(("ro",) if source.read_only else ())})
        if source.fs_group is not None and not source.read_only:
            self._give_to_group(uid, volume, path, source, source.fs_group)
        return str(path)

    def _give_to_group(self, uid: str, volume: str, path: Path, source: Local, group: int) -> None:
        """Give the volume to the group, unless another pod has it already."""
        if self._is_first(path):
            if source.always or not belongs_to_group(path, group):
                give_to_group(path, group, visited=OwnershipChange(uid, path, self._clock, self.report).visited)
        elif (now := path.stat().st_gid) != group:
            text = f"The requested fsGroup is {group}, but the volume {volume} has GID {now}. "
            text += "The volume may not be shareable."
            self.report(PluginEvent("AlreadyMountedVolume", text, uid=uid))

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Unmount the volume from the pod's directory, and remove the directory."""
        path = self._directories.volume(uid, self.name, volume)
        if os.path.lexists(path):
            _unmount(path)
            path.rmdir()

    def map_block(self, uid: str, volume: str, source: Local, gathered: SetUpInputs) -> str:
        """Map the device for the pod, and return the path of the pod's link to it."""
        self._directories.make(uid)
        link = self._directories.block_link(uid, self.name, volume)
        map_device(gathered.device_path, self._map(volume), uid, link)
        self.report_mapped(uid, volume, self._map(volume), link)
        return str(link)

    def unmap_block(self, uid: str, volume: str) -> None:
        """Unmap the device from the pod."""
        link = self._directories.block_link(uid, self.name, volume)
        unmap_device(self._map(volume), uid)
        remove_link(link)

    def expand(self, uid: str, volume: str, source: Local, capacity: int, gathered: SetUpInputs) -> None:
        """Make the file system of a device as large as the device. A directory has no size of its own."""
        mount = containing(mount_table(), str(self._mount(volume)))
        if mount is not None and mount.path == str(self._mount(volume)):
            grow(mount.source, self._mount(volume), mount.filesystem)

    def usage(self, uid: str, volume: str, source: Local) -> VolumeReading:
        """Return how full the file system is, or how large the block device is."""
        if source.block:
            link = self._directories.block_link(uid, self.name, volume)
            return VolumeReading(usage_of_device(link, self._clock.wall()))
        return VolumeReading(usage_of_filesystem(self._directories.volume(uid, self.name, volume), self._clock.wall()))

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return a volume for each directory and for each link to a block device."""
        links = self._directories.block_links_of(uid, self.name)
        names = {*self._directories.volumes_of(uid, self.name), *links}
        return [FoundVolume(name, self.name, unique_name=f"{self.name}/{name}") for name in sorted(names)]

    def _is_first(self, path: Path) -> bool:
        """Return whether no other pod has the same directory mounted."""
        pods = f"{self._directories.pods}/"
        return not any(other.startswith(pods) for other in references(mount_table(), str(path)))

    def _mount(self, volume_name: str) -> Path:
        return self._directories.plugin(self.name) / "mounts" / volume_name

    def _map(self, volume_name: str) -> Path:
        return self._directories.plugin(self.name.replace("/", "~")) / "volumeDevices" / volume_name


def _unmount(path: Path) -> None:
    while is_mount_point(path):
        unmount(path)
