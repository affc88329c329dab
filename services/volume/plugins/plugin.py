"""Defines the volume plugin: what a type of volume requests, and how it is set up, torn down and found again.

The deciding half is `read`, a class method without I/O, clock or randomness. The acting half blocks and runs in a
thread. It may be killed at any line: a method that is called again finds the work of its first call done, and what a
teardown needs is on disk or in the mount table, never only in memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from services.volume.adapters.csi_client import NO_DRIVERS, CsiDrivers
from services.volume.adapters.flex_drivers import NO_FLEX_DRIVERS, FlexDrivers
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundDevice, FoundVolume, PluginEvent, VolumeReading
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from shared.files.tree_removal import RemovalProgress
from shared.model.objects import Object
from shared.time.clock import Clock

Source = TypeVar("Source")


class AttachError(OSError):
    """A device could not be attached to this node, so that there is nothing to mount."""


class VolumePlugin(ABC, Generic[Source]):
    """One type of volume; `Source` is its own frozen value, `VolumeSpec.source`. The acting methods raise OSError; its
    text is that of the FailedMount message. Their `volume` is the name of the volume's directory: of a PersistentVolume
    its name."""

    name: ClassVar[str]  # as `kubernetes.io/secret`; with `~` for `/` it is the directory of its volumes
    # Its directories may be those of PersistentVolumes, named after them: the core knows them by `<name>/<directory>`.
    persistent: ClassVar[bool] = False
    attachable: ClassVar[bool] = False  # its devices may be attached by the attach-detach controller
    mount_options: ClassVar[bool] = False  # it takes the mount options of a PersistentVolume

    def __init__(
        self,
        directories: PodDirectories,
        clock: Clock,
        drivers: CsiDrivers = NO_DRIVERS,
        flex_drivers: FlexDrivers = NO_FLEX_DRIVERS,
    ) -> None:
        self._directories, self._clock, self._drivers, self._flex = directories, clock, drivers, flex_drivers
        self.report: Callable[[PluginEvent], None] = lambda _: None  # called in the thread of a call

    @classmethod
    @abstractmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """Return what the volume of this name requests. `source`: the value of the plugin's field in spec.volumes, of
        any shape inside. It never raises because of the content of a pod."""

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec | Refused:
        """Return what the pod's volume with this PersistentVolume requests. `source`: the value of the plugin's field
        in its spec, of any shape inside. It never raises because of the content of the objects. The registry adds what
        all plugins have in common: key, capacity and who may use it."""
        return Refused("this type of PersistentVolume is not supported")

    @abstractmethod
    def set_up(self, uid: str, volume: str, source: Source, gathered: SetUpInputs) -> str:
        """Set the volume of the pod up, or bring it up to date; return its absolute host path, "" = it has none.
        `gathered`: the objects and tokens of its VolumeSpec. Raises ContentError where files are missing."""

    def begin_set_up(
        self, uid: str, volume: str, source: Source, gathered: SetUpInputs
    ) -> tuple[str, Callable[[], None] | None]:
        """Set the volume up as `set_up` does, but leave out the part that takes as long as there are files and calls no
        driver. Return the path and that part, which is to be called afterwards and raises OSError; None = there is
        none."""
        return self.set_up(uid, volume, source, gathered), None

    def takes_labels(self, path: str) -> bool:
        """Return whether the files of the volume, which is mounted at the path, can have SELinux labels of their own.
        It is called where VolumeSpec.selinux_relabel is set."""
        return True

    @abstractmethod
    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Unmount and remove what this plugin has of the volume, if it has anything. `removed` counts the entries.
        Raises RemovalPausedError."""

    @abstractmethod
    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return every volume of the pod of which something is on disk, after a restart."""


class MeasuredVolumePlugin(VolumePlugin[Source]):
    """A type of volume whose usage its plugin measures; pleg measures the directories of all others."""

    @abstractmethod
    def usage(self, uid: str, volume: str, source: Source) -> VolumeReading | None:
        """Return how full the mounted volume is; None = that is not known. Raises OSError."""


class DeviceMountableVolumePlugin(VolumePlugin[Source]):
    """A type of volume with a device layer. Its VolumeSpec has a `volume_name`; set-up receives the path of the device
    as `gathered.device_path` and mounts it for one pod. `FoundVolume.unique_name` of `reconstruct` names the device."""

    @abstractmethod
    def mount_device(self, volume_name: str, source: Source, gathered: SetUpInputs) -> str:
        """Mount the device once for all pods; return its absolute path. `source`: of one of the volumes;
        `gathered.device_path`: the device that the attach-detach controller reports."""

    @abstractmethod
    def unmount_device(self, volume_name: str) -> None:
        """Unmount the device, if it is mounted. No pod's volume is mounted on it any more."""

    @abstractmethod
    def reconstruct_devices(self) -> list[FoundDevice]:
        """Return every device of which something is on disk or mounted, after a restart."""


class BlockVolumePlugin(DeviceMountableVolumePlugin[Source]):
    """A type of volume that a pod may also have as a block device: then `VolumeSpec.block` is True, and these methods
    replace `set_up` and `tear_down`. `reconstruct` returns such volumes too."""

    @abstractmethod
    def map_block(self, uid: str, volume: str, source: Source, gathered: SetUpInputs) -> str:
        """Make the device available to the pod; return the absolute path of the device."""

    def report_mapped(self, uid: str, volume: str, global_map: Path, link: Path) -> None:
        """Report two events that the pod has the device, with the directory of all pods and that of this pod
        (volumes.md 5.4)."""
        for what, path in (("globalMapPath", global_map), ("volumeMapPath", link.parent)):
            text = f'MapVolume.MapPodDevice succeeded for volume "{volume}" {what} "{path}"'
            self.report(PluginEvent("SuccessfulMountVolume", text, uid=uid, is_warning=False))

    @abstractmethod
    def unmap_block(self, uid: str, volume: str) -> None:
        """Unmap the device from the pod, if it is mapped."""


class ExpandableVolumePlugin(VolumePlugin[Source]):
    """A type of volume that can be expanded while it is mounted, to `VolumeSpec.capacity`."""

    @abstractmethod
    def expand(self, uid: str, volume: str, source: Source, capacity: int, gathered: SetUpInputs) -> None:
        """Expand the mounted volume to `capacity` bytes, if it is smaller. `gathered`: the objects of
        `VolumeSpec.expansion_objects`. Raises ExpansionError, and ContentError where objects are missing; any other
        OSError is a failure without effect."""
