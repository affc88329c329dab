"""Checks hostPath volumes, and creates what their type says (volumes.md 13.2); blocking."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from services.volume.core.volume_spec import HostPath

_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def set_up(source: HostPath) -> str:
    """Check the path as its type says; the host path. Raises OSError, its text is the kubelet's."""
    if ".." in source.path.split("/"):
        raise OSError(errno.EINVAL, f"invalid HostPath `{source.path}`: must not contain '..'")
    if not source.type:
        return source.path
    path, kind = Path(source.path), source.type
    if kind in ("DirectoryOrCreate", "FileOrCreate"):
        kind = kind.removesuffix("OrCreate")
        if not path.exists():
            _create(path, kind)
            return source.path
    if kind not in _CHECKS:
        raise OSError(errno.EINVAL, f"{source.type} is an invalid volume type")
    matches, what = _CHECKS[kind]
    if not (path.exists() and matches(path.stat().st_mode)):
        raise OSError(errno.EINVAL, f"hostPath type check failed: {source.path} is not {what}")
    return source.path


def _create(path: Path, kind: str) -> None:
    if kind == "Directory":
        missing = [path, *(parent for parent in path.parents if not parent.exists())]
        path.mkdir(parents=True, exist_ok=True)
        for directory in missing:
            directory.chmod(0o755)
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.close(descriptor)
    path.chmod(0o644)
