"""Mounts volumes of FlexVolume drivers: executables of the node that mount and unmount (volumes.md 19). The volumes of
drivers that attach them to nodes have a device, which is mounted once, for all pods.

A volume's directory names its driver, `<vendor>~<driver>`, and that of its device is `<driver>/mounts/<volume>` below
`plugins/kubernetes.io/flexvolume`. Each is made before the driver is called, and removed after the driver was called to
unmount. Clean-up removes an empty directory, and never a file.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from services.volume.adapters.block_devices import grow, mount_filesystem
from services.volume.adapters.mounts import bind_with_options, is_mount_point, mount_table, unmount_all
from services.volume.adapters.ownership import OwnershipChange, belongs_to_group, give_to_group
from services.volume.adapters.volume_usage import usage_of_filesystem
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundDevice, FoundVolume, VolumeReading
from services.volume.core.specs.expansion import ExpansionError, ExpansionFailure
from services.volume.core.specs.flex_volume import (
    MOUNTS,
    DriverFailureError,
    FlexVolume,
    device_options,
    flex_volume,
    mount_options,
    secret_values,
    why_invalid,
)
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import ATTACH, FLEX_VOLUME, Node, Refused, VolumeSpec, unique_name
from services.volume.plugins.plugin import DeviceMountableVolumePlugin, ExpandableVolumePlugin, MeasuredVolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import containing, references
from shared.model import objects
from shared.model.fields import dictionary, text
from shared.model.objects import Object
from shared.pods.directory import make_directory

_MODE = 0o750


class FlexVolumePlugin(
    DeviceMountableVolumePlugin[FlexVolume], ExpandableVolumePlugin[FlexVolume], MeasuredVolumePlugin[FlexVolume]
):
    """Mounts volumes of FlexVolume drivers."""

    name = FLEX_VOLUME
    persistent = True
    attachable = True

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """Return the spec of an inline volume, whose Secret is in the namespace of the pod."""
        if node.alone and node.flex_attaches:  # there is no attach-detach controller
            return Refused("attaching volumes from the kubelet is not supported", ATTACH)
        secret = text(dictionary(source.get("secretRef")).get("name"))
        key = ObjectKey("Secret", objects.namespace(pod), secret) if secret else None
        read_only = source.get("readOnly") is True
        return cls._spec(flex_volume(pod, volume, source, key, read_only=read_only, attaches=node.flex_attaches))

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec | Refused:
        """Return the spec of a PersistentVolume; a block volume is refused."""
        if persistent.block:
            return Refused("block volumes of this type are not supported", "MapVolume.SetUpDevice")
        reference = dictionary(source.get("secretRef"))
        namespace = text(reference.get("namespace")) or objects.namespace(pod)
        key = ObjectKey("VolumeSecret", namespace, text(reference.get("name"))) if reference.get("name") else None
        read_only, attaches = persistent.read_only or source.get("readOnly") is True, persistent.node.flex_attaches
        return cls._spec(flex_volume(pod, persistent.name, source, key, read_only=read_only, attaches=attaches))

    @classmethod
    def _spec(cls, found: FlexVolume) -> VolumeSpec | Refused:
        if why := why_invalid(found.driver):
            return Refused(why)
        return VolumeSpec(
            plugin=cls.name,
            source=found,
            volume_name=found.volume_name,
            attachable=found.attaches,
            read_only=found.read_only,
            selinux_relabel=not found.read_only,
            objects=frozenset({found.secret} if found.secret is not None else ()),
            served_by=found.driver,
        )

    def mount_device(self, volume_name: str, source: FlexVolume, gathered: SetUpInputs) -> str:
        """Let the driver wait until the volume is attached, and mount its device; return where. A driver that does not
        mount devices leaves that to the agent. One that reports no device may have none."""
        path, options = self._device(volume_name), device_options(source)
        self._flex.require_ended(source.driver, path)
        self._flex.require_ended(source.driver, options, f"volume {source.name}")
        if is_mount_point(path):
            return str(path)
        device = gathered.device_path
        try:
            device = self._flex.call(source.driver, "waitforattach", device, options).device
        except DriverFailureError as error:
            if not error.unsupported:
                raise
        make_directory(path, _MODE)
        try:
            self._flex.call(source.driver, "mountdevice", str(path), device, options)
        except DriverFailureError as error:
            if not error.unsupported:
                self._undo(source.driver, path, "unmountdevice")
                raise
            if device:
                mode = "ro" if source.read_only else "rw"
                mount_filesystem(device, path, source.filesystem or "auto", [mode])
        except OSError:
            self._undo(source.driver, path, "unmountdevice")
            raise
        return str(path)

    def unmount_device(self, volume_name: str) -> None:
        """Let the driver unmount the device, unless it is still mounted elsewhere, and remove its directory."""
        path = self._device(volume_name)
        if not _is_there(path):
            return
        if others := references(mount_table(), str(path)):
            text = f'the device mount path "{path}" is still mounted by other references [{" ".join(others)}]'
            raise OSError(errno.EBUSY, text)
        driver = volume_name.rpartition("/")[0]
        self._flex.require_ended(driver, path)
        if is_mount_point(path) or any(path.iterdir()):  # the kubelet, too, calls no driver where nothing is mounted
            self._unmount(driver, path, "unmountdevice")
        else:
            path.rmdir()

    def reconstruct_devices(self) -> list[FoundDevice]:
        """Return a device for each directory of one."""
        top, found = self._directories.plugin(self.name), list[FoundDevice]()
        for path in sorted([*top.glob(f"*/{MOUNTS}/*"), *top.glob(f"*/*/{MOUNTS}/*")]):
            driver = str(path.parent.parent.relative_to(top))
            if not why_invalid(driver):
                found.append(FoundDevice(self.name, f"{driver}/{path.name}"))
        return found

    def set_up(self, uid: str, volume: str, source: FlexVolume, gathered: SetUpInputs) -> str:
        """Let the driver mount the volume, and give it to the pod's fsGroup at once."""
        path, rest = self.begin_set_up(uid, volume, source, gathered)
        if rest is not None:
            rest()
        return path

    def begin_set_up(
        self, uid: str, volume: str, source: FlexVolume, gathered: SetUpInputs
    ) -> tuple[str, Callable[[], None] | None]:
        """Let the driver mount the volume, unless it is mounted. The returned rest gives it to the pod's fsGroup, where
        the driver has that capability."""
        self._directories.make(uid)
        path = self._directories.volume(uid, source.driver, volume)
        self._flex.require_ended(source.driver, path)
        able = self._flex.capabilities(source.driver)
        if able.attach and not source.attaches:
            text = f"the FlexVolume driver {source.driver} was replaced, and attaches volumes to nodes now"
            raise OSError(errno.EAGAIN, f"{text}: the volume waits until it is attached")
        if not is_mount_point(path):
            secrets = secret_values(source, gathered)
            options = mount_options(source, secrets)
            make_directory(path.parent, _MODE)
            make_directory(path, _MODE)
            try:
                self._flex.call(source.driver, "mount", str(path), options, secrets=secrets)
            except DriverFailureError as error:
                if not error.unsupported or not source.attaches:
                    self._undo(source.driver, path, "unmount")
                    raise
                self._bind(Path(gathered.device_path), path, source)
            except OSError:
                self._undo(source.driver, path, "unmount")
                raise
        if source.fs_group is None or source.read_only or not able.fs_group:
            return str(path), None
        return str(path), partial(self._give_to_group, uid, path, source, source.fs_group)

    def takes_labels(self, path: str) -> bool:
        """Return whether the driver has the capability."""
        able = self._flex.known(_driver(Path(path).parent))
        return able is not None and able.selinux_relabel

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Let the driver unmount the volume, and remove its directory."""
        for folder in self._folders(uid):
            path = self._directories.volume(uid, folder.name, volume)
            if _is_there(path):
                self._flex.require_ended(_driver(folder), path)
                self._unmount(_driver(folder), path, "unmount")

    def expand(self, uid: str, volume: str, source: FlexVolume, capacity: int, gathered: SetUpInputs) -> None:
        """Let the driver grow the file system; one that does not do that leaves it to the agent, where the file system
        is on a device."""
        path = self._directories.volume(uid, source.driver, volume)
        if not self._flex.capabilities(source.driver).requires_fs_resize:
            why = f"the FlexVolume driver {source.driver} expands no file systems on nodes"
            raise ExpansionError(ExpansionFailure.UNSUPPORTED, why)
        mount, sizes = containing(mount_table(), str(path)), (str(capacity), str(gathered.capacity_before))
        mount = mount if mount is not None and mount.path == str(path) else None
        device = mount.source if mount is not None else ""
        try:
            self._flex.call(source.driver, "expandfs", device_options(source), device, str(path), *sizes)
        except DriverFailureError as error:
            if not error.unsupported:
                raise
            if mount is not None:
                grow(mount.source, path, mount.filesystem)
        except TimeoutError as error:
            raise ExpansionError(None, error.strerror or str(error)) from None

    def usage(self, uid: str, volume: str, source: FlexVolume) -> VolumeReading | None:
        """Return how full the file system is, None = the driver does not have the capability."""
        able = self._flex.known(source.driver)
        if able is None or not able.supports_metrics:
            return None
        return VolumeReading(
            usage_of_filesystem(self._directories.volume(uid, source.driver, volume), self._clock.wall())
        )

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return a volume for each directory below one that names a driver."""
        found = dict[str, str]()
        for folder in self._folders(uid):
            for name in self._directories.volumes_of(uid, folder.name):
                device = f"{_driver(folder)}/{name}"
                is_there = _is_there(self._device(device))
                found[name] = unique_name(self.name, device) if is_there else found.get(name, "")
        return [FoundVolume(name, self.name, unique_name=device) for name, device in sorted(found.items())]

    def _folders(self, uid: str) -> list[Path]:
        """Return the directories of drivers: those that are of no plugin of Kubernetes itself."""
        return [folder for folder in self._directories.volume_folders(uid) if not why_invalid(_driver(folder))]

    def _device(self, volume_name: str) -> Path:
        """Return where the device of a volume is mounted."""
        driver, _, name = volume_name.rpartition("/")
        return self._directories.plugin(self.name) / driver / MOUNTS / name

    def _bind(self, device: Path, path: Path, source: FlexVolume) -> None:
        """Bind the device of a driver that does not mount for pods."""
        if not is_mount_point(device):
            text = f"the FlexVolume driver {source.driver} mounts nothing for pods, and has mounted nothing at {device}"
            raise OSError(errno.EOPNOTSUPP, text)
        bind_with_options(device, path, ("ro",) if source.read_only else ())

    def _unmount(self, driver: str, path: Path, command: str) -> None:
        try:
            self._flex.call(driver, command, str(path))
        except FileNotFoundError as error:
            if is_mount_point(path) or any(path.iterdir()):
                text = f"{path} cannot be unmounted: {error.strerror}, or unmount and empty the directory"
                raise OSError(errno.ENOENT, text) from None
        except DriverFailureError as error:
            if not error.unsupported:
                raise
            unmount_all(path)
        if is_mount_point(path):
            text = f"the FlexVolume driver {driver} was called to {command} and has reported success"
            raise OSError(errno.EBUSY, f"{text}, but {path} is still mounted")
        if os.path.lexists(path):  # the driver may have removed it
            path.rmdir()

    def _undo(self, driver: str, path: Path, command: str) -> None:
        """Take away what a call that failed has mounted, so that the next one begins anew; what is left is unmounted
        once no pod needs the volume."""
        with contextlib.suppress(OSError):
            self._flex.require_ended(driver, path)
            if is_mount_point(path):
                self._unmount(driver, path, command)
            else:
                path.rmdir()

    def _give_to_group(self, uid: str, path: Path, source: FlexVolume, group: int) -> None:
        if source.always or not belongs_to_group(path, group):
            give_to_group(path, group, visited=OwnershipChange(uid, path, self._clock, self.report).visited)


def _is_there(path: Path) -> bool:
    """Return whether the directory exists. A look at what is mounted there would fail or hang with a dead server."""
    try:
        return path in path.parent.iterdir()
    except (FileNotFoundError, NotADirectoryError):
        return False


def _driver(folder: Path) -> str:
    """Return the name of the driver whose volumes are in the directory `<vendor>~<driver>`."""
    return folder.name.replace("~", "/")
