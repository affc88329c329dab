"""Binds subpaths, which are bind mounts of one file or directory in a volume for one container (volumes.md 12.3);
blocking.

A container may change its volume at any time. So names are resolved first, and then each step down from the volume's
own directory is opened by its descriptor, without following a symlink. What was opened is bound, even if something else
has its name by then. No message contains a path inside the volume, because the path may have been expanded from a
Secret.
"""

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakValueDictionary

from services.volume.adapters.mounts import bind, unmount_all
from services.volume.adapters.pod_directories import PodDirectories
from shared.pods.directory import make_directory
from shared.process.crash import crash_point

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY_MODE, _FILE_MODE = 0o750, 0o640
_PREPARE, _CREATE = "prepare subPath", "create subPath directory"
LOCK_TIMEOUT_SECONDS = 1.0
_MAX_TRIES = 5  # more than one, because an update may replace the files of the volume between two steps


class SubpathError(Exception):
    """The subpath cannot be prepared. `str()` is for the log alone; `step`: the failed step, as shown in the API;
    `passing`: the cause may be that files are just being replaced by newer ones."""

    def __init__(self, step: str, reason: str, *, passing: bool = False) -> None:
        self.step, self.passing = step, passing
        super().__init__(reason)


class Subpaths:
    """Binds and releases the subpaths of all pods."""

    def __init__(self, directories: PodDirectories) -> None:
        self._directories = directories
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()  # by pod: one may hang
        self._finding = threading.Lock()

    def prepare(self, uid: str, volume: str, container: str, index: int, root: str, path: str) -> str:
        """Bind a subpath and return the host path for the container's mount. `root`: where the volume is; what is
        missing of `path` in it is made as directories with the mode of `root`. A subpath that is bound already is used.
        Raises SubpathError."""
        for _ in range(_MAX_TRIES - 1):
            try:
                return self._prepare(uid, volume, container, index, root, path)
            except SubpathError as error:
                if not error.passing:
                    raise
        return self._prepare(uid, volume, container, index, root, path)

    def _prepare(self, uid: str, volume: str, container: str, index: int, root: str, path: str) -> str:
        try:
            target = self._directories.subpath(uid, volume, container, index)
            source = _open_subpath(root, path)
            try:
                wanted = os.fstat(source)
                crash_point("volume.subpath.opened")
                with self._locked(uid):
                    _bind(source, wanted, target)
            finally:
                os.close(source)
        except OSError as error:
            passing = isinstance(error, FileNotFoundError)
            raise SubpathError(_PREPARE, (error.strerror or str(error)).lower(), passing=passing) from error
        return str(target)

    def release(self, uid: str, container: str) -> None:
        """Unmount and remove everything that was bound for one container, if anything was. Raises OSError."""
        top = self._directories.subpaths(uid)
        with self._locked(uid):
            for volume in _entries(top):
                _clear(top / volume, container)
            _remove_empty(top)

    def clean(self, uid: str, volume: str) -> None:
        """Unmount and remove everything that was bound of one volume, if anything was. Raises OSError."""
        top = self._directories.subpaths(uid)
        place = self._directories.subpath(uid, volume, "any", 0).parent.parent
        with self._locked(uid):
            for container in _entries(place):
                _clear(place, container)
            _remove_empty(place)
            _remove_empty(top)

    def volumes(self, uid: str) -> list[str]:
        """Return the names of the pod's volumes of which something may be bound."""
        return _entries(self._directories.subpaths(uid))

    @contextlib.contextmanager
    def _locked(self, uid: str) -> Iterator[None]:
        """Admit one thread at a time for each pod. Raises OSError where another one has not returned after
        `LOCK_TIMEOUT_SECONDS`."""
        with self._finding:
            lock = self._locks.setdefault(uid, threading.Lock())
        if not lock.acquire(timeout=LOCK_TIMEOUT_SECONDS):
            raise OSError(errno.EBUSY, "waits for another subPath of the pod that does not return")
        try:
            yield
        finally:
            lock.release()


def _open_subpath(root: str, path: str) -> int:
    """Return a descriptor (O_PATH) of what `path` names in the volume. Raises OSError, SubpathError."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise SubpathError(_PREPARE, "is no path inside a volume")
    base = Path(root).resolve(strict=True)
    if _is_missing(base.joinpath(*parts)):
        _make(base, parts)
    return _walk(base, _resolve_inside(base, parts, _PREPARE))


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        pass  # the walk raises the error
    return False


def _resolve_inside(base: Path, parts: list[str], step: str) -> list[str]:
    """Return the path below the volume's directory without symlinks. Raises SubpathError where it leads out of it."""
    try:
        real = base.joinpath(*parts).resolve(strict=True)
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symlinks
        raise SubpathError(step, f"cannot be resolved: {type(error).__name__}") from error
    if not real.is_relative_to(base):
        raise SubpathError(step, "leads out of the volume")
    return list(real.relative_to(base).parts)


def _walk(base: Path, parts: list[str]) -> int:
    """Open one directory after the other, and return the descriptor of the last part. Raises SubpathError for a symlink
    that was put there meanwhile."""
    here = os.open(base, _STEP)
    try:
        for part in parts:
            below = os.open(part, _STEP, dir_fd=here)
            os.close(here)
            here = below
        if stat.S_ISLNK(os.fstat(here).st_mode):
            raise SubpathError(_PREPARE, "became a symlink while it was looked at")
    except BaseException:
        os.close(here)
        raise
    return here


def _make(base: Path, parts: list[str]) -> None:
    """Make the directories of the path that are missing."""
    known = 0
    while known < len(parts) and os.path.lexists(base.joinpath(*parts[: known + 1])):
        known += 1
    try:
        existing = _resolve_inside(base, parts[:known], _CREATE)
    except FileNotFoundError as error:
        raise SubpathError(_CREATE, "a symlink in it leads nowhere", passing=True) from error
    mode = stat.S_IMODE(base.stat().st_mode)
    try:
        here = _walk(base, existing)
        try:
            for part in parts[known:]:
                below = _make_directory(here, part, mode)
                os.close(here)
                here = below
        finally:
            os.close(here)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SubpathError(_CREATE, (error.strerror or "").lower()) from error


def _make_directory(parent: int, name: str, mode: int) -> int:
    """Make one directory with exactly this mode whatever the umask, and return its descriptor. A directory that another
    process has just made is used."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        made = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            os.fchmod(made, mode)
        except OSError:
            os.close(made)
            raise
        return made
    return os.open(name, _STEP | os.O_DIRECTORY, dir_fd=parent)


def _bind(source: int, wanted: os.stat_result, target: Path) -> None:
    for directory in (target.parent.parent.parent, target.parent.parent, target.parent):
        make_directory(directory, _DIRECTORY_MODE)
    with contextlib.suppress(FileNotFoundError):
        found = target.lstat()
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
            return  # bound already: the file or directory that we mount on is never the same as the source
        _remove_bind(target)
    if stat.S_ISDIR(wanted.st_mode):
        make_directory(target, _DIRECTORY_MODE)
    else:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE))
        target.chmod(_FILE_MODE)
    crash_point("volume.subpath.target")
    bind(source, target)
    crash_point("volume.subpath.bound")


def _clear(place: Path, container: str) -> None:
    """Unmount and remove everything that is bound of one volume for one container."""
    for index in _entries(place / container):
        _remove_bind(place / container / index)
    _remove_empty(place / container)
    _remove_empty(place)


def _remove_bind(target: Path) -> None:
    """Unmount a subpath, then remove the empty file or directory that it was mounted on. Nothing in a volume is ever
    removed here."""
    unmount_all(target)
    crash_point("volume.subpath.unmounted")
    if stat.S_ISDIR(target.lstat().st_mode):
        target.rmdir()
        return
    if target.lstat().st_size:
        raise OSError(errno.ENOTEMPTY, "is not ours: it has content", str(target))
    target.unlink()


def _entries(directory: Path) -> list[str]:
    """Return the sorted entries of a directory of ours; none where it is missing or is no directory."""
    try:
        opened = os.open(directory, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        return sorted(os.listdir(opened))  # noqa: PTH208 - of a descriptor
    finally:
        os.close(opened)


def _remove_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
