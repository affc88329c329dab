"""Sets up, refreshes and tears down volumes of files: what holds them, and the writer in it (volumes.md 9)."""

import contextlib
import os
from functools import partial
from pathlib import Path

from services.volume.adapters.atomic_writer import AtomicWriter
from services.volume.adapters.backing_directory import is_ready, set_up_at, tear_down_at
from services.volume.adapters.ownership import give_to_group
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files_source import CONFIG_MAP, PLUGINS, Files
from services.volume.core.outcome import FoundVolume
from services.volume.core.payload import Payload
from services.volume.core.payload_paths import tops
from services.volume.core.volume_spec import MEMORY, EmptyDir
from shared.tree_removal import Removed


class FilesVolumes:
    """The secret, configMap, downwardAPI and projected volumes of all pods. Methods raise OSError."""

    def __init__(self, directories: PodDirectories) -> None:
        self._directories = directories

    def set_up(self, uid: str, volume: str, source: Files, payload: Payload, *, wall: float) -> str:
        """Show these files; the host path. What is mounted already is used, and stays when the files cannot be written;
        a first set-up that fails leaves nothing. Raises ContentError for a path no file may have."""
        self._directories.make(uid)
        path, marker = self._paths(uid, source.plugin, volume)
        give = None if source.fs_group is None else partial(give_to_group, group=source.fs_group, read_only=True)
        writer = AtomicWriter(path, give)
        first = writer.current is None
        try:
            set_up_at(path, marker, EmptyDir(MEMORY if source.in_memory else "", source.size))
            _make_nested(path, source, payload)
            writer.write(payload, wall=wall)
        except Exception:
            if first:
                with contextlib.suppress(OSError):
                    tear_down_at(path, marker)
            raise
        return str(path)

    def tear_down(self, uid: str, volume: str, removed: Removed | None = None) -> None:
        """Whichever plugin it is of; what is absent is done. `removed` counts the entries."""
        for plugin in PLUGINS:
            tear_down_at(*self._paths(uid, plugin, volume), removed)

    def found(self, uid: str) -> list[FoundVolume]:
        """What lies on the disk, after a restart. A tmpfs that a reboot took is not whole."""
        return [
            self._look(uid, plugin, volume)
            for plugin in PLUGINS
            for volume in self._directories.volumes_of(uid, plugin)
        ]

    def _look(self, uid: str, plugin: str, volume: str) -> FoundVolume:
        path, marker = self._paths(uid, plugin, volume)
        backed = is_ready(marker) and (plugin == CONFIG_MAP or os.path.ismount(path))
        return FoundVolume(volume, plugin, str(path), whole=backed and AtomicWriter(path).current is not None)

    def _paths(self, uid: str, plugin: str, volume: str) -> tuple[Path, Path]:
        return self._directories.files(uid, plugin, volume), self._directories.files_marker(uid, volume)


def _make_nested(path: Path, source: Files, payload: Payload) -> None:
    """Directories for mounts of other volumes, except below files of this one."""
    taken = tops(payload)
    for nested in source.nested:
        directory = path
        for part in nested.split("/"):
            directory /= part
            if directory.parent == path and (part in taken or directory.is_symlink()):
                break
            if not directory.is_dir():
                directory.mkdir()
                directory.chmod(0o755)
