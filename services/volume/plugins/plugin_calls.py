"""Hands each operation to the adapter that does it; called in a thread, blocking."""

from dataclasses import replace

from services.volume.adapters.backing_directory import EmptyDirs
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.subpaths import Subpaths
from services.volume.core.files_source import Files
from services.volume.core.operations import (
    MakePodDirectories,
    MountVolume,
    Operation,
    RemovePodDirectory,
    UnmountVolume,
)
from services.volume.core.outcome import FoundVolume
from services.volume.core.payload import Gathered, make_payload
from services.volume.core.volume_spec import EmptyDir, HostPath, Image
from services.volume.plugins import host_path
from services.volume.plugins.files import FilesVolumes
from shared.clock import Clock
from shared.tree_removal import Removed


class Actions:
    """All that volume does to the disk and to mounts."""

    def __init__(self, directories: PodDirectories, clock: Clock) -> None:
        self._directories, self._clock = directories, clock
        self._empty_dirs, self._files = EmptyDirs(directories), FilesVolumes(directories)
        self.subpaths = Subpaths(directories)

    def perform(self, operation: Operation, gathered: Gathered, removed: Removed | None = None) -> str:
        """The host path of what was mounted, else "". `removed` counts the entries of a removal. Raises OSError,
        ContentError where files are missing, and RemovalPausedError."""
        match operation:
            case MakePodDirectories(uid) | MountVolume(uid, _, Image()):
                self._directories.make(uid)
            case MountVolume(uid, volume, EmptyDir() as source):
                return self._empty_dirs.set_up(uid, volume, source)
            case MountVolume(uid, volume, Files() as source):
                payload = make_payload(source, gathered)
                return self._files.set_up(uid, volume, source, payload, wall=self._clock.wall())
            case MountVolume(uid, _, HostPath() as source):
                self._directories.make(uid)
                return host_path.set_up(source)
            case UnmountVolume(uid, volume):
                self.subpaths.clean(uid, volume)
                self._empty_dirs.tear_down(uid, volume, removed)
                self._files.tear_down(uid, volume, removed)
            case RemovePodDirectory(uid):
                self._directories.remove(uid, removed)
        return ""

    def directory(self, uid: str) -> str:
        """`pods/<uid>`. Raises OSError for a name that leads elsewhere."""
        return str(self._directories.pod(uid))

    def found(self, uid: str) -> list[FoundVolume]:
        """Every volume of the pod that has a directory, or of which something is bound, after a restart."""
        empty_dirs = [FoundVolume(name) for name in self._directories.empty_dirs(uid)]
        found = {volume.name: volume for volume in [*empty_dirs, *self._files.found(uid)]}
        for name in self.subpaths.volumes(uid):
            found[name] = replace(found.get(name, FoundVolume(name, on_disk=False)), subpaths=True)
        return list(found.values())


def error_text(error: OSError) -> str:
    """As Go words it: the path, then the reason in lower case; our own texts as they are."""
    if error.filename is None:
        return error.strerror or str(error)
    return f"{error.filename}: {(error.strerror or '').lower()}"
