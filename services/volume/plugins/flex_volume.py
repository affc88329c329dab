"""Mounts volumes of FlexVolume drivers: executables of the node that mount and unmount (volumes.md 19). Drivers that
attach volumes to nodes are refused.

A volume's directory names its driver, `<vendor>~<driver>`. It is made before the driver is called, and removed after
the driver was called to unmount. Clean-up removes an empty directory, and never a file.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from services.volume.adapters.csi_client import NO_DRIVERS, CsiDrivers
from services.volume.adapters.flex_drivers import FlexDrivers
from services.volume.adapters.mounts import is_mount_point, unmount_all
from services.volume.adapters.ownership import OwnershipChange, belongs_to_group, give_to_group
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.volume_usage import usage_of_filesystem
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundVolume, VolumeReading
from services.volume.core.specs.flex_volume import (
    DriverFailureError,
    FlexVolume,
    flex_volume,
    options_text,
    secret_values,
    why_invalid,
)
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.plugin import MeasuredVolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.model import objects
from shared.model.fields import dictionary, text
from shared.model.objects import Object
from shared.pods.directory import make_directory
from shared.time.clock import Clock

_MODE = 0o750


class FlexVolumePlugin(MeasuredVolumePlugin[FlexVolume]):
    """Mounts volumes of FlexVolume drivers, each for its pod alone."""

    name = "kubernetes.io/flexvolume"
    persistent = True

    def __init__(
        self,
        directories: PodDirectories,
        clock: Clock,
        drivers: CsiDrivers = NO_DRIVERS,
        volume_plugin_dir: str = "",
    ) -> None:
        super().__init__(directories, clock, drivers)
        self._flex = FlexDrivers(volume_plugin_dir, clock)

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """Return the spec of an inline volume, whose Secret is in the namespace of the pod."""
        secret = text(dictionary(source.get("secretRef")).get("name"))
        key = ObjectKey("Secret", objects.namespace(pod), secret) if secret else None
        return cls._spec(flex_volume(pod, volume, source, key, read_only=source.get("readOnly") is True))

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec | Refused:
        """Return the spec of a PersistentVolume; a block volume is refused."""
        if persistent.block:
            return Refused("block volumes of this type are not supported", "MapVolume.SetUpDevice")
        reference = dictionary(source.get("secretRef"))
        namespace = text(reference.get("namespace")) or objects.namespace(pod)
        key = ObjectKey("VolumeSecret", namespace, text(reference.get("name"))) if reference.get("name") else None
        read_only = persistent.read_only or source.get("readOnly") is True
        return cls._spec(flex_volume(pod, persistent.name, source, key, read_only=read_only))

    @classmethod
    def _spec(cls, found: FlexVolume) -> VolumeSpec | Refused:
        if why := why_invalid(found.driver):
            return Refused(why)
        return VolumeSpec(
            plugin=cls.name,
            source=found,
            read_only=found.read_only,
            selinux_relabel=not found.read_only,
            objects=frozenset({found.secret} if found.secret is not None else ()),
            served_by=found.driver,
        )

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
        if able.attach:
            why = 'its init does not answer "capabilities": {"attach": false}'
            text = f"the FlexVolume driver {source.driver} attaches volumes to nodes, which is not supported ({why})"
            raise OSError(errno.EOPNOTSUPP, f"{text}: use the CSI driver of the storage")
        if not is_mount_point(path):
            secrets = secret_values(source, gathered)
            options = options_text(source, secrets)
            make_directory(path.parent, _MODE)
            make_directory(path, _MODE)
            try:
                self._flex.call(source.driver, "mount", str(path), options, secrets=secrets)
            except OSError:
                with contextlib.suppress(OSError):  # what is left is unmounted once no pod needs the volume
                    self._undo(source.driver, path)
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
            if os.path.lexists(path):
                self._unmount(_driver(folder), path)

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
        names = {name for folder in self._folders(uid) for name in self._directories.volumes_of(uid, folder.name)}
        return [FoundVolume(name, self.name) for name in sorted(names)]

    def _folders(self, uid: str) -> list[Path]:
        """Return the directories of drivers: those that are of no plugin of Kubernetes itself."""
        return [folder for folder in self._directories.volume_folders(uid) if not why_invalid(_driver(folder))]

    def _unmount(self, driver: str, path: Path) -> None:
        self._flex.require_ended(driver, path)
        try:
            self._flex.call(driver, "unmount", str(path))
        except FileNotFoundError as error:
            if is_mount_point(path) or any(path.iterdir()):
                text = f"{path} cannot be unmounted: {error.strerror}, or unmount and empty the directory"
                raise OSError(errno.ENOENT, text) from None
        except DriverFailureError as error:
            if not error.unsupported:
                raise
            unmount_all(path)
        if is_mount_point(path):
            text = f"the FlexVolume driver {driver} was called to unmount and has reported success"
            raise OSError(errno.EBUSY, f"{text}, but {path} is still mounted")
        if os.path.lexists(path):  # the driver may have removed it
            path.rmdir()

    def _undo(self, driver: str, path: Path) -> None:
        """Take away what a call that failed has mounted, so that the next one begins anew."""
        if is_mount_point(path):
            self._unmount(driver, path)
        else:
            path.rmdir()

    def _give_to_group(self, uid: str, path: Path, source: FlexVolume, group: int) -> None:
        if source.always or not belongs_to_group(path, group):
            give_to_group(path, group, visited=OwnershipChange(uid, path, self._clock, self.report).visited)


def _driver(folder: Path) -> str:
    """Return the name of the driver whose volumes are in the directory `<vendor>~<driver>`."""
    return folder.name.replace("~", "/")
