"""Checks or creates the paths of hostPath volumes according to their type (volumes.md 13.2). They are never
unmounted."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundVolume
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, VolumeSpec
from services.volume.plugins.plugin import VolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.model.frozen_copy import replace
from shared.model.objects import Object

_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


class HostPath(Struct, frozen=True):
    """A path of the node. `path`: absolute; `type` "" = the path is neither checked nor created."""

    path: str
    type: str = ""


class HostPathPlugin(VolumePlugin[HostPath]):
    """Sets up hostPath volumes. The check may hang where the path is on a network file system, so
    `VolumeSpec.node_path` names the path."""

    name = "kubernetes.io/host-path"

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec:
        """Return the spec of the hostPath; the path itself is checked at set-up."""
        host_path = HostPath(path=str(source.get("path", "")), type=str(source.get("type") or ""))
        check = "hostPath type check" if host_path.type else ""
        return VolumeSpec(
            plugin=cls.name, source=host_path, has_directory=False, node_path=host_path.path, node_check=check
        )

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec:
        """Return the spec of a hostPath PersistentVolume."""
        return replace(cls.read(pod, persistent.name, source, Node()), read_only=persistent.read_only)

    def set_up(self, uid: str, volume: str, source: HostPath, gathered: SetUpInputs) -> str:
        """Check or create the path, and return it."""
        self._directories.make(uid)
        return check_host_path(source)

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Do nothing, because the path belongs to the node."""

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return nothing, because a hostPath has no directory of its own."""
        return []


def check_host_path(source: HostPath) -> str:
    """Check the path, or create it, according to its type; return it. Raises OSError with the kubelet's text."""
    if ".." in source.path.split("/"):
        raise OSError(errno.EINVAL, f"invalid HostPath `{source.path}`: must not contain '..'")
    if not source.type:
        return source.path
    path, kind = Path(source.path), source.type
    if kind in ("DirectoryOrCreate", "FileOrCreate"):
        kind = kind.removesuffix("OrCreate")
        if not path.exists():
            _create(path, kind)
    if kind not in _CHECKS:
        raise OSError(errno.EINVAL, f"{source.type} is an invalid volume type")
    matches, what = _CHECKS[kind]
    if not (path.exists() and matches(path.stat().st_mode)):
        raise OSError(errno.EINVAL, f"hostPath type check failed: {source.path} is not {what}")
    return source.path


def _create(path: Path, kind: str) -> None:
    """Make the missing file or directories. A container that may write there can put a link or a FIFO in their place at
    any moment, so what exists already is left as it is, and the mode is set by descriptor."""
    if kind == "File":
        with contextlib.suppress(FileExistsError):
            _give_mode(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), 0o644)
        return
    for directory in reversed([path, *path.parents]):
        if directory.is_dir():
            continue
        try:
            directory.mkdir(mode=0o755)
        except FileExistsError:
            continue
        _give_mode(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC), 0o755)


def _give_mode(descriptor: int, mode: int) -> None:
    """Set the mode, whatever the umask is, and close the descriptor."""
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
