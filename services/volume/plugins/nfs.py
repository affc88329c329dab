"""Mounts nfs volumes: an export of a server, inline in the pod or as a PersistentVolume (volumes.md 13.3).

Calls on it hang while the server does not respond, so they count for the server, and unmounts are done by a program
that can be killed. Such a program may continue after the process that began it: until it has ended, the volume is not
mounted, and while a program mounts it, its directory stays. Clean-up unmounts and removes an empty directory: it never
removes a file.
"""

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from services.volume.adapters.block_devices import mount_filesystem
from services.volume.adapters.mounts import is_mount_point
from services.volume.adapters.programs import run_with_helpers, running_on
from services.volume.adapters.volume_usage import usage_of_filesystem
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundVolume, VolumeReading
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.plugin import MeasuredVolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.model.fields import text
from shared.model.objects import Object
from shared.pods.directory import make_directory

_CORRUPTED = frozenset(
    {errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.EACCES, errno.EHOSTDOWN, errno.EWOULDBLOCK, errno.ENODEV}
)
UNMOUNT_SECONDS = 60.0  # after which the unmount is forced


@dataclass(frozen=True)
class Nfs:
    """An export of an nfs server. `export`: `<server>:<path>`; `options`: sorted mount options."""

    export: str
    options: tuple[str, ...] = field(default=(), compare=False)


class NfsPlugin(MeasuredVolumePlugin[Nfs]):
    """Mounts nfs volumes. Each pod has a mount of its own, also where pods use the same export."""

    name = "kubernetes.io/nfs"
    persistent = True
    mount_options = True

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """Return the spec of an inline nfs volume."""
        return cls._spec(source, (), read_only=source.get("readOnly") is True)

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec | Refused:
        """Return the spec of an nfs PersistentVolume; a block volume is refused."""
        if persistent.block:
            return Refused("block volumes of this type are not supported", "MapVolume.SetUpDevice")
        read_only = persistent.read_only or source.get("readOnly") is True
        return cls._spec(source, persistent.mount_options, read_only=read_only)

    @classmethod
    def _spec(cls, source: Object, options: tuple[str, ...], *, read_only: bool) -> VolumeSpec | Refused:
        server, path = text(source.get("server")), text(source.get("path"))
        if not server or not path:
            return Refused("an nfs volume needs a server and a path")
        if server.startswith("-"):  # mount and mount.nfs would read it as an option
            return Refused("the server of an nfs volume must not begin with -")
        if any(option.startswith("-") for option in options):
            return Refused("a mount option of an nfs volume must not begin with -")
        export = f"[{server}]:{path}" if ":" in server and not server.startswith("[") else f"{server}:{path}"
        listed = tuple(sorted({*options, *(("ro",) if read_only else ())}))
        return VolumeSpec(
            plugin=cls.name,
            source=Nfs(export, listed),
            read_only=read_only,
            node_path=export,
            node_check="mount of nfs",
        )

    def set_up(self, uid: str, volume: str, source: Nfs, gathered: SetUpInputs) -> str:
        """Mount the export, and return its path. A mount whose server has forgotten it is mounted again."""
        self._directories.make(uid)
        path = self._directories.volume(uid, self.name, volume)
        _require_ended(path, "mount", "umount")
        if is_mount_point(path):
            try:
                with os.scandir(path) as entries:
                    next(entries, None)
            except OSError as error:
                if error.errno not in _CORRUPTED:
                    raise
                _unmount(path)
                _require_ended(path, "umount")
            else:
                return str(path)
        make_directory(path, 0o750)
        mount_filesystem(source.export, path, "nfs", list(source.options))
        return str(path)

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Unmount the export, and remove its directory."""
        path = self._directories.volume(uid, self.name, volume)
        while is_mount_point(path):
            _unmount(path)
        _require_ended(path, "mount")
        if os.path.lexists(path):
            path.rmdir()

    def usage(self, uid: str, volume: str, source: Nfs) -> VolumeReading:
        """Return how full the export is."""
        return VolumeReading(usage_of_filesystem(self._directories.volume(uid, self.name, volume), self._clock.wall()))

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return a volume for each directory."""
        return [FoundVolume(name, self.name) for name in self._directories.volumes_of(uid, self.name)]


def _require_ended(path: Path, *programs: str) -> None:
    """Raise OSError while one of these programs works on the path."""
    for program in programs:
        if running_on(path, program):
            raise OSError(errno.EBUSY, f"an earlier {program} of {path} has not ended")


def _unmount(path: Path) -> None:
    """Run the program umount, and force the unmount where the server does not answer. Raises OSError."""
    try:
        done = run_with_helpers("umount", str(path), seconds=UNMOUNT_SECONDS)
    except TimeoutError:
        done = run_with_helpers("umount", "-f", str(path), seconds=UNMOUNT_SECONDS)
    if done.code != 0 and is_mount_point(path):
        text = f"unmount failed: exit status {done.code} Unmounting arguments: {path} Output: {done.output}"
        raise OSError(errno.EBUSY, text)
