"""Removes directory trees that containers have filled, whatever they put there; blocking."""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a directory with all it holds; absent is fine. Never follows a symlink, never leaves the filesystem.

    Every directory found inside is first moved up to the top, so that neither memory nor open files grow with the depth
    of a tree that a container may have made on purpose. Raises OSError, for a mount point inside with the kubelet's
    text; what is left can be removed by calling again.
    """
    try:
        top = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        token = secrets.token_hex(8)
        pending = _clear(top, top, path, token, 0)
        number = len(pending)
        while pending:
            name = pending.pop()
            inner = os.open(name, _DIRECTORY, dir_fd=top)
            try:
                moved = _clear(inner, top, path / name, token, number)
            finally:
                os.close(inner)
            number += len(moved)
            pending += moved
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    path.rmdir()


def _clear(directory: int, top: int, path: Path, token: str, number: int) -> list[str]:
    """Unlink the files of a directory and move its subdirectories to the top; their new names there."""
    moved: list[str] = []
    with os.scandir(directory) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    device = os.fstat(directory).st_dev
    for name, is_directory in names:
        with contextlib.suppress(FileNotFoundError):
            if not is_directory:
                os.unlink(name, dir_fd=directory)
                continue
            if os.stat(name, dir_fd=directory, follow_symlinks=False).st_dev != device:
                raise _mount_point(path / name)
            new = f".removing-{token}-{number + len(moved)}"
            try:
                os.rename(name, new, src_dir_fd=directory, dst_dir_fd=top)
            except OSError as error:
                if error.errno in (errno.EBUSY, errno.EXDEV):
                    raise _mount_point(path / name) from error
                raise OSError(error.errno, error.strerror, str(path / name)) from error
            moved.append(new)
    return moved


def _mount_point(path: Path) -> OSError:
    return OSError(errno.EBUSY, f"cannot delete directory {path}: it is a mount point")


def remove_empty_directories(path: Path) -> None:
    """Remove a tree that holds directories only; absent is fine. Raises OSError (a file, a full directory)."""
    try:
        entries = sorted(path.iterdir())
    except FileNotFoundError:
        return
    for entry in entries:
        if not stat.S_ISDIR(entry.lstat().st_mode):
            raise OSError(errno.ENOTEMPTY, "is no directory", str(entry))
        entry.rmdir()
    path.rmdir()
