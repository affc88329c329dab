"""Volumes without mounts: what volume's plugins do to the disk, in memory, and the pod directories of podsync."""

import shutil
from collections.abc import Callable
from pathlib import Path

from services.volume.adapters.subpaths import Subpaths
from services.volume.core.files.files_source import Files
from services.volume.core.files.payload import SetUpInputs, make_payload
from services.volume.core.operations.operations import (
    MakePodDirectories,
    MountVolume,
    Operation,
    RemoveOldFiles,
    RemovePodDirectory,
    UnmountVolume,
)
from services.volume.core.operations.outcome import FoundDevice, FoundVolume, Performed, PluginEvent
from services.volume.plugins.plugin_calls import PluginCalls
from shared.files.tree_removal import RemovalProgress
from tests.simulation.oracle import Oracle
from tests.simulation.story import Story

Shown = dict[str, bytes]


class Volumes:
    """The disk's truth over all processes of volume: uid -> volume -> its files (None for an emptyDir)."""

    def __init__(self, root: Path, story: Story, oracle: Oracle) -> None:
        self.root, self._story, self._oracle = root, story, oracle
        self.mounted: dict[str, dict[str, tuple[str, Shown]]] = {}
        self.old_files: set[tuple[str, str]] = set()  # uid, volume: files that an update has replaced
        self.bound: dict[str, set[tuple[str, str, int]]] = {}  # uid -> volume, container, index of each subpath


class SimulatedSubpaths(Subpaths):
    """In place of volume's Subpaths."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes

    def prepare(self, uid: str, volume: str, container: str, index: int, root: str, path: str) -> str:
        """As the real one; the host path."""
        self._volumes.bound.setdefault(uid, set()).add((volume, container, index))
        return str(self._volumes.root / "pods" / uid / "volume-subpaths" / volume / container / str(index))

    def release(self, uid: str, container: str) -> None:
        """As the real one."""
        self._volumes.bound[uid] = {bound for bound in self._volumes.bound.get(uid, set()) if bound[1] != container}


class SimulatedCalls(PluginCalls):
    """In place of volume's PluginCalls."""

    def __init__(self, volumes: Volumes, story: Story, oracle: Oracle) -> None:
        self._volumes, self._story, self._oracle = volumes, story, oracle
        self.subpaths = SimulatedSubpaths(volumes)

    def perform(self, operation: Operation, gathered: SetUpInputs, removed: RemovalProgress) -> Performed:
        """As the real one."""
        mounted, old_files = self._volumes.mounted, self._volumes.old_files
        match operation:
            case MakePodDirectories(uid):
                mounted.setdefault(uid, {})
            case MountVolume(spec=spec) if not spec.has_directory:  # a path of the node
                return Performed(spec.node_path)
            case MountVolume(uid, volume, spec):
                plugin, shown = "", {}
                if isinstance(spec.source, Files):
                    plugin = spec.plugin
                    shown = {path: file.content for path, file in make_payload(spec.source, gathered).items()}
                if mounted.get(uid, {}).get(volume) != (plugin, shown):
                    self._story.add("volume", f"mounts {volume} of {uid[-12:]}")
                    if plugin and volume in mounted.get(uid, {}):
                        old_files.add((uid, volume))
                mounted.setdefault(uid, {})[volume] = (plugin, shown)
                path = str(self._volumes.root / "pods" / uid / "volumes" / volume)
                return Performed(path, (uid, volume) in old_files)
            case RemoveOldFiles(uid, volume):
                old_files.discard((uid, volume))
            case UnmountVolume(uid, volume):
                self._volumes.bound[uid] = {
                    bound for bound in self._volumes.bound.get(uid, set()) if bound[0] != volume
                }
                if volume in mounted.get(uid, {}):
                    self._story.add("volume", f"unmounts {volume} of {uid[-12:]}")
                    self._oracle.unmounted(uid, volume)
                mounted.get(uid, {}).pop(volume, None)
                old_files.discard((uid, volume))
            case RemovePodDirectory(uid):
                if mounted.get(uid) or self._volumes.bound.get(uid):
                    raise OSError(16, "Orphaned pod found, but volumes are not cleaned up")
                self._story.add("volume", f"removes the directory of {uid[-12:]}")
                self._oracle.unmounted(uid, "its directory")
                mounted.pop(uid, None)
                self._volumes.bound.pop(uid, None)
                shutil.rmtree(self._volumes.root / "pods" / uid, ignore_errors=True)
        return Performed()

    def report_to(self, report: Callable[[PluginEvent], None]) -> None:
        """Nothing is reported."""

    def uids(self) -> list[str]:
        """Every pod that has a directory."""
        pods = self._volumes.root / "pods"
        on_disk = [path.name for path in pods.iterdir()] if pods.is_dir() else []
        return sorted({*on_disk, *self._volumes.mounted})

    def find_devices(self) -> list[FoundDevice]:
        """None: the simulated pods have no such volumes."""
        return []

    def directory(self, uid: str) -> str:
        """As the real one."""
        return str(self._volumes.root / "pods" / uid)

    def find_volumes(self, uid: str) -> list[FoundVolume]:
        """Every volume of the pod, after a restart."""
        here = self._volumes.mounted.get(uid, {})
        path = self._volumes.root / "pods" / uid / "volumes"
        bound = {volume for volume, _, _ in self._volumes.bound.get(uid, set())}
        complete = [
            FoundVolume(name, plugin, str(path / name) if plugin else "", complete=bool(plugin), subpaths=name in bound)
            for name, (plugin, _) in sorted(here.items())
        ]
        return [*complete, *(FoundVolume(n, on_disk=False, subpaths=True) for n in sorted(bound - here.keys()))]
