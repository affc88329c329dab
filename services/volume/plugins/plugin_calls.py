"""Performs each operation by calls of volume plugins; blocking, in a thread."""

from dataclasses import replace
from typing import Any

from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.subpaths import Subpaths
from services.volume.core.operations import (
    ExpandVolume,
    MakePodDirectories,
    MountDevice,
    MountVolume,
    Operation,
    RemovePodDirectory,
    UnmountDevice,
    UnmountVolume,
)
from services.volume.core.outcome import FoundDevice, FoundVolume
from services.volume.core.payload import Gathered
from services.volume.plugins.plugin import (
    BlockVolumePlugin,
    DeviceMountableVolumePlugin,
    ExpandableVolumePlugin,
    VolumePlugin,
)
from services.volume.plugins.registry import PLUGINS, Plugins
from shared.clock import Clock
from shared.tree_removal import Removed


class PluginCalls:
    """All that volume does to the disk and to mounts. Methods raise OSError."""

    def __init__(self, directories: PodDirectories, clock: Clock, plugins: Plugins = PLUGINS) -> None:
        self._directories = directories
        self._plugins: dict[str, VolumePlugin[Any]] = {
            plugin.name: plugin(directories, clock) for plugin in plugins.values()
        }
        items = self._plugins.items()
        self._devices = {name: each for name, each in items if isinstance(each, DeviceMountableVolumePlugin)}
        self._blocks = {name: each for name, each in items if isinstance(each, BlockVolumePlugin)}
        self._expandable = {name: each for name, each in items if isinstance(each, ExpandableVolumePlugin)}
        self.subpaths = Subpaths(directories)

    def perform(self, operation: Operation, gathered: Gathered, removed: Removed) -> str:
        """Return the path of what was mounted, else "". `removed` counts the entries of a removal. Raises also
        ContentError where files are missing, and RemovalPausedError."""
        match operation:
            case MakePodDirectories(uid):
                self._directories.make(uid)
            case MountDevice(_, spec):
                return self._devices[spec.plugin].mount_device(spec.volume_name, spec.source, gathered)
            case MountVolume(uid, volume, spec, device_path):
                gathered = replace(gathered, device_path=device_path)
                if spec.block:
                    return self._blocks[spec.plugin].map_block(uid, volume, spec.source, gathered)
                return self._plugins[spec.plugin].set_up(uid, volume, spec.source, gathered)
            case ExpandVolume(uid, volume, spec, capacity):
                self._expandable[spec.plugin].expand(uid, volume, spec.source, capacity)
            case UnmountVolume(uid, volume):
                self.subpaths.clean(uid, volume)
                for plugin in self._plugins.values():  # a pod that kept its UID may have had a volume of another type
                    plugin.tear_down(uid, volume, removed)
                for block in self._blocks.values():
                    block.unmap_block(uid, volume)
            case UnmountDevice(_, plugin_name, volume_name):
                self._devices[plugin_name].unmount_device(volume_name)
            case RemovePodDirectory(uid):
                self._directories.remove(uid, removed)
        return ""

    def uids(self) -> list[str]:
        """Return the UID of every pod that has a directory, or whose directory's removal was interrupted."""
        return self._directories.uids()

    def directory(self, uid: str) -> str:
        """Return `pods/<uid>`. Raises OSError for a name that leads elsewhere."""
        return str(self._directories.pod(uid))

    def found(self, uid: str) -> list[FoundVolume]:
        """Return every volume of the pod that has a directory, or of which a subpath is bound, after a restart."""
        volumes = [volume for plugin in self._plugins.values() for volume in plugin.reconstruct(uid)]
        found = {volume.name: volume for volume in volumes}
        for name in self.subpaths.volumes(uid):
            found[name] = replace(found.get(name, FoundVolume(name, on_disk=False)), subpaths=True)
        return list(found.values())

    def found_devices(self) -> list[FoundDevice]:
        """Return every device of which something is on disk or mounted, after a restart."""
        return [device for plugin in self._devices.values() for device in plugin.reconstruct_devices()]


def error_text(error: OSError) -> str:
    """Return the error as Go words it: the path, then the reason in lower case; our own texts as they are."""
    if error.filename is None:
        return error.strerror or str(error)
    return f"{error.filename}: {(error.strerror or '').lower()}"
