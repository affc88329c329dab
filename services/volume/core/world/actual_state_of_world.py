"""Keeps what is mounted, as known from this process's operations and, after a restart, from the disk; pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from bus.messages.volume import VolumeHealth
from services.volume.core.specs.volume_spec import VolumeSpec


class MountState(StrEnum):
    """Whether a volume or device is mounted. UNCERTAIN: something of it may be there, because it was found at start or
    an operation failed half-way; then it is torn down like one that is mounted."""

    UNCERTAIN = "uncertain"
    MOUNTED = "mounted"


@dataclass
class ActualVolume:
    """One volume of one pod. `on_disk`: it has a directory below `volumes/` that must be torn down."""

    state: MountState
    on_disk: bool
    host_path: str = ""
    takes_labels: bool = True  # its files can have SELinux labels of their own
    spec: VolumeSpec | None = None  # as which it was set up; None = found at start
    error: str = ""  # of the last operation
    plugin: str = ""  # the name of the plugin that set it up; "" = only subpaths of it were found
    requires_remount: bool = False  # it is mounted and its content may change; the old one is used until then
    health: tuple[VolumeHealth, ...] | None = None  # adverse conditions by its driver; None = not read yet
    subpaths: bool = False  # something of it may be bound for a container, which goes first
    unique_name: str = ""  # of its device; "" = it has none
    capacity: int = 0  # bytes it was set up or expanded to; 0 = not known
    held: bool = False  # it is mounted, but no pod gets it before it is expanded
    refused_capacity: int = 0  # bytes to which it cannot be expanded on this node; 0 = none
    expansion_failed: bool = False  # finally, at least once
    is_persistent: bool = False  # its directory may be that of a PersistentVolume
    device_unknown: bool = False  # it may be mounted on any device
    attachable: bool = False  # its device is, or may be so: it stays in volumesInUse

    @property
    def to_tear_down(self) -> bool:
        """Return whether something of it has to be removed once no pod needs it."""
        return self.on_disk or self.subpaths


@dataclass
class ActualDevice:
    """The device below the volumes of one unique name."""

    plugin: str
    volume_name: str
    state: MountState
    path: str = ""  # where it is mounted
    error: str = ""  # of the last MountDevice
    step: str = ""  # that failed, "" = mounting it
    attachable: bool = False  # or may be so: it stays in volumesInUse
    label: str = ""  # the SELinux label that it is mounted with, "" = none


@dataclass
class ActualStateOfWorld:
    """The mounted volumes by pod and name, the devices by unique name, and the pods whose directory may be on disk."""

    _volumes: dict[str, dict[str, ActualVolume]] = field(default_factory=dict)  # pod UID -> name -> volume; none empty
    _users: dict[str, set[tuple[str, str]]] = field(default_factory=dict)  # unique name -> pod UID, name; none empty
    on_unknown_devices: set[tuple[str, str]] = field(default_factory=set)  # pod UID, name: no device may be unmounted
    devices: dict[str, ActualDevice] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)  # pods whose directory cannot be read: any volume may be mounted
    directories: set[str] = field(default_factory=set)  # pods/<uid> exists, or may
    prepared: set[str] = field(default_factory=set)  # pods/<uid> was made by this process and not removed since

    def get(self, uid: str, name: str) -> ActualVolume | None:
        """Return one volume of one pod; None = nothing of it is there."""
        return self._volumes.get(uid, {}).get(name)

    def is_mounted(self, uid: str, name: str) -> bool:
        """Return whether one volume of one pod is certainly mounted."""
        volume = self.get(uid, name)
        return volume is not None and volume.state is MountState.MOUNTED

    def put(self, uid: str, name: str, volume: ActualVolume) -> None:
        """Replace the state of a volume."""
        self.drop(uid, name)
        self._volumes.setdefault(uid, {})[name] = volume
        if volume.unique_name:
            self._users.setdefault(volume.unique_name, set()).add((uid, name))
        if volume.device_unknown:
            self.on_unknown_devices.add((uid, name))

    def drop(self, uid: str, name: str) -> None:
        """Forget a volume of which nothing is there any more."""
        self.on_unknown_devices.discard((uid, name))
        volumes = self._volumes.get(uid, {})
        volume = volumes.pop(name, None)
        if not volumes:
            self._volumes.pop(uid, None)
        if volume is not None and volume.unique_name:
            users = self._users[volume.unique_name]
            users.discard((uid, name))
            if not users:
                del self._users[volume.unique_name]

    def is_used(self, unique_name: str) -> bool:
        """Return whether a volume of a pod is, or may be, mounted on this device."""
        return unique_name in self._users

    def attachable(self) -> set[str]:
        """Return the unique names of the attachable devices on which a volume is, or may be, mounted."""
        users = self._users.items()
        return {name for name, keys in users if any(self._volumes[uid][key].attachable for uid, key in keys)}

    def users(self, unique_name: str) -> list[tuple[str, str]]:
        """Return the volumes, by pod UID and name, that are, or may be, mounted on this device."""
        return list(self._users.get(unique_name, ()))

    def volumes_on(self, unique_name: str) -> list[ActualVolume]:
        """Return the volumes that are, or may be, mounted on this device."""
        return [self._volumes[uid][name] for uid, name in self.users(unique_name)]

    def is_used_by_others(self, unique_name: str, uid: str) -> bool:
        """Return whether a volume of another pod is, or may be, mounted on this device."""
        return any(user != uid for user, _ in self._users.get(unique_name, ()))

    def volumes_of(self, uid: str) -> list[tuple[str, ActualVolume]]:
        """Return the volumes of one pod, with their names."""
        return list(self._volumes.get(uid, {}).items())

    def every(self) -> Iterator[tuple[str, str, ActualVolume]]:
        """Return pod UID, name and state of every volume."""
        return ((uid, name, volume) for uid, volumes in self._volumes.items() for name, volume in volumes.items())

    def uids(self) -> set[str]:
        """Return every pod of which something may be on disk."""
        return self._volumes.keys() | self.directories
