"""Performs each operation by calls of volume plugins; blocking, in a thread."""

from collections.abc import Callable
from typing import Any

from services.volume.adapters.csi_client import NO_DRIVERS, CsiDrivers
from services.volume.adapters.flex_drivers import NO_FLEX_DRIVERS, FlexDrivers
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.subpaths import Subpaths
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.operations import (
    ExpandVolume,
    MakePodDirectories,
    MountDevice,
    MountVolume,
    Operation,
    RemoveOldFiles,
    RemovePodDirectory,
    UnmountDevice,
    UnmountVolume,
)
from services.volume.core.operations.outcome import FoundDevice, FoundVolume, Performed, PluginEvent, VolumeReading
from services.volume.core.specs.volume_spec import VolumeSpec, spec_name
from services.volume.plugins.files import FilesPlugin
from services.volume.plugins.plugin import (
    BlockVolumePlugin,
    DeviceMountableVolumePlugin,
    ExpandableVolumePlugin,
    MeasuredVolumePlugin,
    VolumePlugin,
)
from services.volume.plugins.registry import PLUGINS, Plugins
from shared.files.tree_removal import RemovalProgress
from shared.model.frozen_copy import replace
from shared.time.clock import Clock


class PluginCalls:
    """Performs what volume does to the disk and to mounts. Methods raise OSError."""

    def __init__(
        self,
        directories: PodDirectories,
        clock: Clock,
        plugins: Plugins = PLUGINS,
        drivers: CsiDrivers = NO_DRIVERS,
        flex_drivers: FlexDrivers = NO_FLEX_DRIVERS,
    ) -> None:
        self._directories = directories
        self._plugins: dict[str, VolumePlugin[Any]] = {
            plugin.name: plugin(directories, clock, drivers, flex_drivers) for plugin in plugins.values()
        }
        items = self._plugins.items()
        self._devices = {name: plugin for name, plugin in items if isinstance(plugin, DeviceMountableVolumePlugin)}
        self._blocks = {name: plugin for name, plugin in items if isinstance(plugin, BlockVolumePlugin)}
        self._expandable = {name: plugin for name, plugin in items if isinstance(plugin, ExpandableVolumePlugin)}
        self._files = {name: plugin for name, plugin in items if isinstance(plugin, FilesPlugin)}
        self._measured = {name: plugin for name, plugin in items if isinstance(plugin, MeasuredVolumePlugin)}
        self.subpaths = Subpaths(directories)

    def report_to(self, report: Callable[[PluginEvent], None]) -> None:
        """Let plugins report their events to this function, which is called in their threads."""
        for plugin in self._plugins.values():
            plugin.report = report

    def perform(self, operation: Operation, gathered: SetUpInputs, removed: RemovalProgress) -> Performed:
        """Perform the operation and return its result, whose `rest` is to be called then. `removed` counts the entries
        of a removal. Raises also ContentError where files are missing, and RemovalPausedError."""
        match operation:
            case MakePodDirectories(uid):
                self._directories.make(uid)
            case MountDevice(_, spec, device_path=device_path):
                gathered = replace(gathered, device_path=device_path)
                return Performed(self._devices[spec.plugin].mount_device(spec.volume_name, spec.source, gathered))
            case MountVolume(uid, volume, spec, device_path):
                gathered, name = replace(gathered, device_path=device_path), spec_name(volume)
                if spec.block:
                    return Performed(self._blocks[spec.plugin].map_block(uid, name, spec.source, gathered))
                plugin, files = self._plugins[spec.plugin], self._files.get(spec.plugin)
                path, rest = plugin.begin_set_up(uid, name, spec.source, gathered)
                takes_labels = not spec.selinux_relabel or plugin.takes_labels(path)
                return Performed(path, files is not None and files.has_old_files(uid, name), takes_labels, rest)
            case RemoveOldFiles(uid, volume, plugin):
                return Performed(has_old_files=self._files[plugin].remove_old_files(uid, spec_name(volume)))
            case ExpandVolume(uid, volume, spec, capacity):
                gathered = replace(gathered, capacity_before=spec.expansion.before if spec.expansion else 0)
                self._expandable[spec.plugin].expand(uid, spec_name(volume), spec.source, capacity, gathered)
            case UnmountVolume(uid, volume):
                self._tear_down(uid, volume, removed)
            case UnmountDevice(_, plugin_name, volume_name):
                self._devices[plugin_name].unmount_device(volume_name)
            case RemovePodDirectory(uid):
                self._directories.remove(uid, removed)
        return Performed()

    def _tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Tear a volume down by the plugin that its key names. A key that names no plugin is torn down by each plugin
        without such keys, because a pod that kept its UID may have had a volume of another type with this name."""
        owner, _, name = volume.rpartition("/")
        self.subpaths.clean(uid, name)
        for plugin in self._plugins.values():
            if plugin.name != owner and (owner or plugin.persistent):
                continue
            plugin.tear_down(uid, name, removed)
            if isinstance(plugin, BlockVolumePlugin):
                plugin.unmap_block(uid, name)

    def usage(self, uid: str, volume: str, spec: VolumeSpec) -> VolumeReading | None:
        """Return how full a mounted volume is; None = its plugin does not measure it, or that is not known. Raises also
        ContentError where a driver is not registered."""
        plugin = self._measured.get(spec.plugin)
        return plugin.usage(uid, spec_name(volume), spec.source) if plugin is not None else None

    def measures(self, spec: VolumeSpec) -> bool:
        """Return whether the plugin of the volume measures it."""
        return spec.plugin in self._measured

    def uids(self) -> list[str]:
        """Return the UID of every pod that has a directory, or whose directory's removal was interrupted."""
        return self._directories.uids()

    def directory(self, uid: str) -> str:
        """Return `pods/<uid>`. Raises OSError for a name that leads elsewhere."""
        return str(self._directories.pod(uid))

    def find_volumes(self, uid: str) -> list[FoundVolume]:
        """Return every volume of the pod that has a directory, or of which a subpath is bound, after a restart."""
        found = dict[str, FoundVolume]()
        for plugin in self._plugins.values():
            for volume in plugin.reconstruct(uid):
                key = f"{plugin.name}/{volume.name}" if plugin.persistent else volume.name
                found[key] = replace(volume, key=key, attachable=plugin.attachable)
        for name in self.subpaths.volumes(uid):
            keys = [key for key in found if spec_name(key) == name] or [name]
            for key in keys:
                found[key] = replace(found.get(key, FoundVolume(name, on_disk=False, key=key)), subpaths=True)
        return list(found.values())

    def find_devices(self) -> list[FoundDevice]:
        """Return every device of which something is on disk or mounted, after a restart."""
        return [
            replace(device, attachable=plugin.attachable)
            for plugin in self._devices.values()
            for device in plugin.reconstruct_devices()
        ]


def error_text(error: OSError) -> str:
    """Return the error as Go prints it: the path, then the reason in lower case. Our own texts are returned as they
    are."""
    if error.filename is None:
        return error.strerror or str(error)
    return f"{error.filename}: {(error.strerror or '').lower()}"
