"""Subpaths: bind mounts of one file or directory in a volume, for one container (volumes.md 12.3); blocking.

A container may change its volume at any time: names are resolved first, and then each step down from the volume's own
directory is opened by its descriptor, following no symlink. The opened descriptor is bound, whatever has its name by
then. No message contains a path inside the volume, because the path may have been expanded from a Secret.
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
LOCK_TIMEOUT = 1.0  # seconds
_TRIES = 5  # the files of a volume may be replaced by new ones between two steps


class SubpathError(Exception):
    """The subpath cannot be prepared. `str()` is for the log alone; `step`: the failed step, as shown in the API;
    `passing`: files are perhaps being replaced by newer ones."""

    def __init__(self, step: str, reason: str, *, passing: bool = False) -> None:
        self.step, self.passing = step, passing
        super().__init__(reason)


class Subpaths:
    """The subpaths of all pods."""

    def __init__(self, directories: PodDirectories) -> None:
        self._directories = directories
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()  # by pod: one may hang
        self._finding = threading.Lock()

    def prepare(self, uid: str, volume: str, container: str, index: int, root: str, path: str) -> str:
        """Bind a subpath and return the host path for the container's mount. `root`: where the volume is; what is
        missing of `path` in it is made as directories with the mode of `root`. A subpath that is bound already is used.
        Raises SubpathError."""
        for _ in range(_TRIES - 1):
            try:
                return self._prepare(uid, volume, container, index, root, path)
            except SubpathError as error:
                if not error.passing:
                    raise
        return self._prepare(uid, volume, container, index, root, path)

    def _prepare(self, uid: str, volume: str, container: str, index: int, root: str, path: str) -> str:
        try:
            target = self._directories.subpath(uid, volume, container, index)
            source = _opened(root, path)
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
        """Unmount and remove what was bound for one container; nothing is no error. Raises OSError."""
        top = self._directories.subpaths(uid)
        with self._locked(uid):
            for volume in _entries(top):
                _clear(top / volume, container)
            _remove_empty(top)

    def clean(self, uid: str, volume: str) -> None:
        """Unmount and remove what was bound of one volume; nothing is no error. Raises OSError."""
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
        """One thread at a time for each pod. One that hangs delays another by `LOCK_TIMEOUT` seconds. Raises
        OSError."""
        with self._finding:
            lock = self._locks.setdefault(uid, threading.Lock())
        if not lock.acquire(timeout=LOCK_TIMEOUT):
            raise OSError(errno.EBUSY, "waits for another subPath of the pod that does not return")
        try:
            yield
        finally:
            lock.release()


def _opened(root: str, path: str) -> int:
    """A descriptor (O_PATH) of what `path` names in the volume. Raises OSError, SubpathError."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise SubpathError(_PREPARE, "is no path inside a volume")
    base = Path(root).resolve(strict=True)
    if _is_missing(base.joinpath(*parts)):
        _make(base, parts)
    return _walk(base, _inside(base, parts, _PREPARE))


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        pass  # the walk raises the error
    return False


def _inside(base: Path, parts: list[str], step: str) -> list[str]:
    """The same place without symlinks, from the volume's directory down."""
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
    """Open one step after the other; a symlink that was put there meanwhile is an error."""
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
    """Make the directories that are missing, below what there is."""
    known = 0
    while known < len(parts) and os.path.lexists(base.joinpath(*parts[: known + 1])):
        known += 1
    try:
        existing = _inside(base, parts[:known], _CREATE)
    except FileNotFoundError as error:
        raise SubpathError(_CREATE, "a symlink in it leads nowhere", passing=True) from error
    mode = stat.S_IMODE(base.stat().st_mode)
    try:
        here = _walk(base, existing)
        try:
            for part in parts[known:]:
                below = _make_one(here, part, mode)
                os.close(here)
                here = below
        finally:
            os.close(here)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SubpathError(_CREATE, (error.strerror or "").lower()) from error


def _make_one(parent: int, name: str, mode: int) -> int:
    """One directory with exactly this mode whatever the umask; its descriptor. One that has just come is used."""
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
            return  # bound already: our own file or directory there is another
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
    """Everything bound for one container of one volume."""
    for index in _entries(place / container):
        _remove_bind(place / container / index)
    _remove_empty(place / container)
    _remove_empty(place)


def _remove_bind(target: Path) -> None:
    """Unmount, then remove what it was mounted on, which is empty: nothing in a volume is ever removed here."""
    unmount_all(target)
    crash_point("volume.subpath.unmounted")
    if stat.S_ISDIR(target.lstat().st_mode):
        target.rmdir()
        return
    if target.lstat().st_size:
        raise OSError(errno.ENOTEMPTY, "is not ours: it has content", str(target))
    target.unlink()


def _entries(directory: Path) -> list[str]:
    """The sorted entries of a directory of ours; none where it is missing or is no directory."""
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
