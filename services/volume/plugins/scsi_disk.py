"""Mounts volumes on SCSI disks: what iscsi and fc have in common (volumes.md 13.5, 13.6). A disk is attached to the
node, mounted once below `plugins/` and bound into each pod, or mapped for each pod as a block device.

The record of a disk is written beside its directory before the disk is attached, and removed after it was detached.
Clean-up unmounts and removes empty directories: it never removes a file of a volume.
"""

import errno
import json
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar
from weakref import WeakValueDictionary

import orjson

from services.volume.adapters.block_devices import DEFAULT_TYPE, FilesystemMismatchError, format_and_mount
from services.volume.adapters.block_maps import map_device, remove_link, remove_map, unmap_device
from services.volume.adapters.mounts import bind_with_options, is_mount_point, mount_table, unmount_all
from services.volume.adapters.ownership import OwnershipChange, belongs_to_group, give_to_group
from services.volume.adapters.scsi_disks import ScsiDisks
from services.volume.adapters.volume_usage import usage_of_device, usage_of_filesystem
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundDevice, FoundVolume, PluginEvent, VolumeReading
from services.volume.core.specs.scsi_disks import DiskUse
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.plugin import AttachError, BlockVolumePlugin, MeasuredVolumePlugin
from shared.files.atomic import remove_unfinished, write_atomically
from shared.files.regular_file import read_regular_file
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import references
from shared.model.fields import dictionary, text
from shared.model.objects import Object
from shared.pods.directory import make_directory
from shared.process.crash import crash_point

_MODE = 0o750
_MAPS = "volumeDevices"
_FOLDERS = "/"  # the lock of the directories of interfaces
_MAX_RECORD_BYTES = 1 << 16


class ScsiDisk(Hashable, Protocol):
    """The source of a volume. `directory`: below those of the plugin."""

    @property
    def use(self) -> DiskUse: ...

    @property
    def volume_name(self) -> str: ...

    @property
    def directory(self) -> str: ...

    def record(self) -> Object: ...


Disk = TypeVar("Disk", bound=ScsiDisk)


class ScsiDiskPlugin(BlockVolumePlugin[Disk], MeasuredVolumePlugin[Disk]):
    """A type of volume on SCSI disks."""

    persistent = True
    mount_options = True
    attachable = True
    machine: ClassVar[Path] = Path("/")  # whose /sys and /dev have the disks
    record_inside: ClassVar[str] = ""  # the kubelet's own record, below the mount, "" = it has none
    _locks: ClassVar[WeakValueDictionary[str, threading.Lock]] = WeakValueDictionary()
    _finding: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def spec_of(
        cls, disk: Disk | str, node: Node, *, objects: frozenset[ObjectKey] = frozenset(), served_by: str = ""
    ) -> VolumeSpec | Refused:
        """Return the spec of a volume on this disk; refuse it where there is only a reason why it has none."""
        if isinstance(disk, str):
            return Refused(disk)
        return VolumeSpec(
            plugin=cls.name,
            source=disk,
            volume_name=disk.volume_name,
            attachable=not node.attaches,
            block=disk.use.block,
            read_only=disk.use.read_only,
            selinux_relabel=not disk.use.read_only and not disk.use.block,
            objects=objects,
            served_by=served_by,
        )

    @abstractmethod
    def attach(self, disk: Disk, gathered: SetUpInputs) -> str:
        """Attach the disk, if it is not; return the path of its device. Raises OSError, ContentError."""

    @abstractmethod
    def detach(self, directory: Path, record: Object) -> None:
        """Detach the disk, which nothing has mounted, if it is attached. `directory`: the one of the disk; `record`:
        what was written of it, {} = nothing. Raises OSError."""

    @abstractmethod
    def volume_name_of(self, directory: Path) -> str:
        """Return the volume that a directory without a record is of, "" = of none."""

    @abstractmethod
    def folders(self, top: Path) -> list[Path]:
        """Return the directories below `top` in which directories of disks may be."""

    @property
    def disks(self) -> ScsiDisks:
        """Return the disks of the node."""
        return ScsiDisks(self.machine)

    @property
    def _root(self) -> Path:
        return self._directories.plugin(self.name)

    def mount_device(self, volume_name: str, source: Disk, gathered: SetUpInputs) -> str:
        """Attach the disk, mount it and return its mount; return the device of a block volume. Raises OSError."""
        target = self._root / (f"{_MAPS}/{source.directory}" if source.use.block else source.directory)
        with self.locked(f"{target.name}/"):
            if not source.use.block and not is_mount_point(target):
                # Where each pod has an interface of its own, the disk is mounted for the first one.
                for path, _ in self._found(volume_name):
                    if is_mount_point(path):
                        return str(path)
            self._save(target, source)
            crash_point("volume.disk.recorded")
            if not source.use.block and is_mount_point(target):
                return str(target)
            try:
                device = self.attach(source, gathered)
            except OSError as error:
                raise AttachError(error.errno, error.strerror or str(error)) from error
            crash_point("volume.disk.attached")
            return device if source.use.block else self._mount(device, target, source)

    def _mount(self, device: str, target: Path, source: Disk) -> str:
        use = source.use
        filesystem = use.filesystem or DEFAULT_TYPE
        if self.disks.is_used(Path(device).name):
            raise OSError(errno.EBUSY, f"the device {device} is in use, but not by this volume")
        try:
            format_and_mount(device, target, filesystem, use.options, read_only=use.read_only)
        except FilesystemMismatchError as error:
            if use.persistent_volume:
                text = f'MountVolume.MountDevice failed for volume "{use.persistent_volume}" : {error.strerror}'
                reason = "FailedMountOnFilesystemMismatch"
                self.report(PluginEvent(reason, text, persistent_volume=use.persistent_volume))
            raise
        return str(target)

    def unmount_device(self, volume_name: str) -> None:
        """Unmount and detach the disk, unless it is still mounted elsewhere or mapped for a pod. Raises OSError."""
        for path, is_map in self._found(volume_name):
            with self.locked(f"{path.name}/"):
                self._unmount(path, is_map=is_map)

    def _unmount(self, path: Path, *, is_map: bool) -> None:
        if others := references(mount_table(), str(path)):
            text = f'the device mount path "{path}" is still mounted by other references [{" ".join(others)}]'
            raise OSError(errno.EBUSY, text)
        unmount_all(path)
        crash_point("volume.disk.unmounted")
        inside = path / (self.record_inside or "no record")
        record = _load(_record_of(path)) or _load(inside)
        if is_map and path.is_dir():
            if [entry.name for entry in path.iterdir()] == [inside.name]:
                inside.unlink()
            remove_map(path)
        self.detach(path, record)
        crash_point("volume.disk.detached")
        if path.is_dir():
            remove_unfinished(inside)
            inside.unlink(missing_ok=True)
            path.rmdir()
        with self.locked(_FOLDERS):
            remove_unfinished(_record_of(path))
            _record_of(path).unlink(missing_ok=True)
            if path.parent not in (self._root, self._root / _MAPS):
                with suppress(OSError):  # it has another disk
                    path.parent.rmdir()

    def reconstruct_devices(self) -> list[FoundDevice]:
        """Return a device for each directory of a disk."""
        names = {self._owner(path) for path, _ in self._paths()}
        return [FoundDevice(self.name, name) for name in sorted(names - {""})]

    def begin_set_up(
        self, uid: str, volume: str, source: Disk, gathered: SetUpInputs
    ) -> tuple[str, Callable[[], None] | None]:
        """Bind the mounted disk into the pod's directory. The returned rest gives it to the pod's fsGroup."""
        self._directories.make(uid)
        path, device, use = self._directories.volume(uid, self.name, volume), Path(gathered.device_path), source.use
        if not is_mount_point(device):
            raise OSError(errno.EIO, f"the device of the volume is not mounted at {device}")
        if not is_mount_point(path):
            make_directory(path, _MODE)
        bind_with_options(device, path, {*use.options, *(("ro",) if use.read_only else ())})
        if use.fs_group is None or use.read_only:
            return str(path), None
        return str(path), partial(self._give_to_group, uid, path, use, use.fs_group)

    def set_up(self, uid: str, volume: str, source: Disk, gathered: SetUpInputs) -> str:
        """Bind the mounted disk into the pod's directory, and give it to the pod's fsGroup at once."""
        path, rest = self.begin_set_up(uid, volume, source, gathered)
        if rest is not None:
            rest()
        return path

    def _give_to_group(self, uid: str, path: Path, use: DiskUse, group: int) -> None:
        if use.always or not belongs_to_group(path, group):
            give_to_group(path, group, visited=OwnershipChange(uid, path, self._clock, self.report).visited)

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Unmount the volume from the pod's directory, and remove the directory."""
        path = self._directories.volume(uid, self.name, volume)
        if is_mount_point(path) or os.path.lexists(path):  # a look at the mount of a disk that is gone fails
            unmount_all(path)
            path.rmdir()

    def map_block(self, uid: str, volume: str, source: Disk, gathered: SetUpInputs) -> str:
        """Map the device for the pod, and return the path of the pod's link to it."""
        self._directories.make(uid)
        link, global_map = self._directories.block_link(uid, self.name, volume), self._root / _MAPS / source.directory
        map_device(gathered.device_path, global_map, uid, link)
        self.report_mapped(uid, volume, global_map, link)
        return str(link)

    def unmap_block(self, uid: str, volume: str) -> None:
        """Unmap the device from the pod."""
        link = self._directories.block_link(uid, self.name, volume)
        if not os.path.lexists(link) and volume not in self._directories.block_links_of(uid, self.name):
            return
        bound, mapped = self._mapped(uid), self._device_of(link)
        for path, is_map in self._paths():
            # What a kill left unbound belongs to no device, and is made again where another volume needs it.
            if is_map and (path / uid).exists() and bound.get(path, mapped) == mapped:
                unmap_device(path, uid)
        remove_link(link)

    def usage(self, uid: str, volume: str, source: Disk) -> VolumeReading:
        """Return how full the file system is, or how large the block device is."""
        if source.use.block:
            link = self._directories.block_link(uid, self.name, volume)
            return VolumeReading(usage_of_device(link, self._clock.wall()))
        return VolumeReading(usage_of_filesystem(self._directories.volume(uid, self.name, volume), self._clock.wall()))

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return a volume for each directory and for each link to a block device of the pod, with the disk that it is
        mounted from or mapped to."""
        table, paths = mount_table(), {str(path): path for path, _ in self._paths()}
        found = []
        for name in self._directories.volumes_of(uid, self.name):
            others = references(table, str(self._directories.volume(uid, self.name, name)))
            disk = next((paths[other] for other in others if other in paths), None)
            found.append(FoundVolume(name, self.name, unique_name=self._unique_name(disk)))
        bound = {device: path for path, device in self._mapped(uid).items()}
        for name in self._directories.block_links_of(uid, self.name):
            disk = bound.get(self._device_of(self._directories.block_link(uid, self.name, name)))
            found.append(FoundVolume(name, self.name, unique_name=self._unique_name(disk)))
        return found

    def _unique_name(self, path: Path | None) -> str:
        name = self._owner(path) if path is not None else ""
        return f"{self.name}/{name}" if name else ""

    def _mapped(self, uid: str) -> dict[Path, str]:
        """Return the directories in which the pod has a device bound, and the name of each device. The mount table has
        it also after the device is gone."""
        top = self._root / _MAPS
        return {
            Path(mount.path).parent: Path(mount.root.removesuffix("//deleted")).name
            for mount in mount_table()
            if Path(mount.path).name == uid and Path(mount.path).is_relative_to(top)
        }

    @staticmethod
    def _device_of(link: Path) -> str:
        return link.readlink().name if link.is_symlink() else ""

    def _paths(self) -> list[tuple[Path, bool]]:
        """Return the directory of each disk, also where only a record of it is left, and whether it is one of maps."""
        found = dict[Path, bool]()
        for top, is_map in ((self._root, False), (self._root / _MAPS, True)):
            for folder in self.folders(top):
                with os.scandir(folder) as listed:
                    # Its type is that of the directory below a mount: a look at the mount of a disk that is gone fails.
                    entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed)
                for name, is_directory in entries:
                    if name.startswith(".") and name.endswith(".json"):
                        found[folder / name.removeprefix(".").removesuffix(".json")] = is_map
                    elif not name.startswith(".") and name != _MAPS and is_directory:
                        found[folder / name] = is_map
        return list(found.items())

    def others(self, directory: Path) -> Iterator[tuple[Path, Object]]:
        """Yield the directories of all disks but this one, with their records."""
        for path, _ in self._paths():
            if path != directory:
                yield path, _load(_record_of(path))

    def _found(self, volume_name: str) -> list[tuple[Path, bool]]:
        return [(path, is_map) for path, is_map in self._paths() if self._owner(path) == volume_name]

    def _owner(self, path: Path) -> str:
        """Return the name of the volume whose disk has the directory. The record names it, where there is one: two
        names may have one directory, such as those of a portal with and without its port."""
        return text(_load(_record_of(path)).get("VolumeName")) or self.volume_name_of(path)

    def _save(self, path: Path, source: Disk) -> None:
        content = json.dumps(source.record()).encode()
        with self.locked(_FOLDERS):
            make_directory(path.parent, _MODE)
            _write(_record_of(path), content)
        if not is_mount_point(path):
            make_directory(path, _MODE)
            if self.record_inside and not source.use.block:
                _write(path / self.record_inside, content)

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Let one call at a time through for each key."""
        with self._finding:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            yield


def _record_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.json")


def _write(path: Path, content: bytes) -> None:
    if _content(path) != content:
        write_atomically(path, content)


def _content(path: Path) -> bytes:
    """Return the content of a record, nothing where there is none, or it cannot be read."""
    try:
        return read_regular_file(path, _MAX_RECORD_BYTES)
    except OSError:
        return b""


def _load(path: Path) -> Object:
    """Return a record, {} = there is none, or it is damaged."""
    with suppress(ValueError):
        return dictionary(orjson.loads(_content(path)))
    return {}
