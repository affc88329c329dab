"""Defines the operations of volume on the outside world as values, and which kind of calls each makes; pure."""

from enum import StrEnum

from msgspec import Struct

from services.volume.core.specs.volume_spec import VolumeSpec


class MakePodDirectories(Struct, frozen=True):
    """Make `pods/<uid>` with `volumes` and `plugins`, 0750."""

    uid: str
    volume: str = ""


class MountDevice(Struct, frozen=True):
    """Mount the device of the volumes with this unique name, once for all pods; its result is the path. It belongs to
    no pod."""

    volume: str  # the unique name
    spec: VolumeSpec  # of one of the volumes
    uid: str = ""
    device_path: str = ""  # that the attach-detach controller has reported


class MountVolume(Struct, frozen=True):
    """Set the volume up, or bring its content up to date; its result is the host path. `device_path`: where its device
    is mounted, "" = it has none."""

    uid: str
    volume: str
    spec: VolumeSpec
    device_path: str = ""


class RemoveOldFiles(Struct, frozen=True):
    """Remove the files that an update of a mounted volume has replaced. `plugin`: the name of its plugin."""

    uid: str
    volume: str
    plugin: str


class ExpandVolume(Struct, frozen=True):
    """Expand a mounted volume to `capacity` bytes."""

    uid: str
    volume: str
    spec: VolumeSpec
    capacity: int


class UnmountVolume(Struct, frozen=True):
    """Tear down the subpaths that are bound of a volume, then the volume with its directory and content."""

    uid: str
    volume: str


class UnmountDevice(Struct, frozen=True):
    """Unmount a device that no pod uses. The operation belongs to no pod."""

    volume: str  # the unique name
    plugin: str
    volume_name: str
    uid: str = ""


class RemovePodDirectory(Struct, frozen=True):
    """Remove `pods/<uid>` by the rules for orphaned pod directories (volumes.md 7)."""

    uid: str
    volume: str = ""


DeviceOperation = MountDevice | UnmountDevice
VolumeOperation = MountVolume | RemoveOldFiles | ExpandVolume | UnmountVolume
Operation = MakePodDirectories | VolumeOperation | RemovePodDirectory | DeviceOperation


class Kind(StrEnum):
    """The kind of an operation, by what may delay it. Operations of one kind take turns; none waits for one of another
    kind."""

    LOCAL = "local"  # writes below the root directory
    HOST_PATH = "hostPath"  # looks at a path that may be on a network file system whose server does not respond
    DEVICE = "device"  # calls a driver or a server, for one device at a time
    REMOVAL = "removal"  # takes as long as there are files


def kind_of(operation: Operation) -> Kind:
    """Return the kind of an operation."""
    match operation:
        case MountDevice() | UnmountDevice():
            return Kind.DEVICE
        case MountVolume(spec=spec) if spec.node_check:
            return Kind.HOST_PATH
        case MountVolume(spec=spec) | ExpandVolume(spec=spec) if spec.unique_name or spec.served_by:
            return Kind.DEVICE
        case UnmountVolume() | RemovePodDirectory():
            return Kind.REMOVAL
        case _:
            return Kind.LOCAL


def needs_content(operation: Operation) -> bool:
    """Return whether Secrets, ConfigMaps or tokens are requested before the operation is performed."""
    if not isinstance(operation, MountVolume | MountDevice):
        return False
    return operation.spec.requires_remount or bool(operation.spec.objects or operation.spec.tokens)
