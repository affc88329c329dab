"""Reads the environment files that a container names from the pod's mounted volumes.
Pods write what is in a volume: links are followed as if the volume were the whole filesystem, so that no path leads out
of it, and only a regular file of bounded size is read. `core.cri.env_file` parses the text.
"""

import errno
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from services.podsync.core.cri.container_mounts import MAX_PATH_BYTES, MountedVolume
from services.podsync.core.cri.env_file import EnvFileError, parse_env_file
from services.podsync.core.cri.environment import UNREADABLE_ENV_FILE, EnvFile, EnvFiles, environment_files
from shared.model.objects import Object

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 20
MAX_FILES = 16  # of a container
MAX_BYTES = 2 << 20  # of all files of a container: as large as the largest environment
MAX_AT_ONCE = 2  # containers whose files are read at the same time
_TOO_MUCH = f"environment files are not read: a container may name {MAX_FILES} of {MAX_BYTES >> 20} MiB together"
_MAX_LINKS = 40  # as in the kernel
_MAX_SHOWN_CHARACTERS = 256  # of a path in the log
_MAX_DEPTH = 256  # directories, each of which is held open


class _NotAPlainFileError(OSError):
    """The path has too many links or directories, or is no regular file of bounded size."""


def read_env_files(container: Object, volumes: Mapping[str, MountedVolume]) -> EnvFiles:
    """Read every file of `environment_files` whose volume is mounted; the result has the variables that the container
    names, or an error. Once there are too many files, or too many bytes, the rest is not read. Never raises."""
    files: dict[tuple[str, str], EnvFile] = {}
    room = MAX_BYTES
    for (name, path), keys in environment_files(container).items():
        if name not in volumes:
            continue
        if len(files) >= MAX_FILES or room <= 0:
            files[name, path] = EnvFile({}, error=_TOO_MUCH)
            continue
        files[name, path], size = _read(volumes[name].host_path, path, keys, room)
        room -= size
    return files


def _read(volume: str, path: str, keys: set[str], room: int) -> tuple[EnvFile, int]:
    """Return the file and its size in bytes."""
    size = 0
    try:
        content = read_inside(Path(volume), path)
        size = len(content)
        if size > room:
            return EnvFile({}, error=_TOO_MUCH), size
        return EnvFile(parse_env_file(content.decode(), keys)), size
    except (FileNotFoundError, NotADirectoryError):
        return EnvFile({}, missing=True), size
    except (OSError, ValueError) as error:  # also a path that no file can have
        why = "it is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        log.warning("environment file %s in %s: %s", path[:_MAX_SHOWN_CHARACTERS], volume, why)
        before = error.before if isinstance(error, EnvFileError) else {}
        return EnvFile(before, error=UNREADABLE_ENV_FILE), size


def read_inside(root: Path, path: str) -> bytes:
    """Return the content of a regular file of at most MAX_FILE_BYTES; links and `..` never lead out of `root`. Raises
    OSError."""
    here = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]  # from the root to the current directory
    try:
        return _walk(here, path)
    finally:
        for fd in here:
            os.close(fd)


def _walk(here: list[int], path: str) -> bytes:
    if len(path) > MAX_PATH_BYTES:
        raise _NotAPlainFileError(errno.ENAMETOOLONG, "too long")
    ahead = [part for part in path.split("/") if part not in ("", ".")][::-1]
    links = 0
    while ahead:
        part = ahead.pop()
        if part == "..":
            if len(here) > 1:
                os.close(here.pop())
            continue
        fd = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here[-1])
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISLNK(mode):
                links += 1
                if links > _MAX_LINKS:
                    raise _NotAPlainFileError(errno.ELOOP, "too many links")
                target = os.readlink("", dir_fd=fd)
                if target.startswith("/"):
                    while len(here) > 1:
                        os.close(here.pop())
                ahead += [name for name in target.split("/") if name not in ("", ".")][::-1]
            elif ahead and stat.S_ISDIR(mode):
                if len(here) > _MAX_DEPTH:
                    raise _NotAPlainFileError(errno.ENAMETOOLONG, "too deep")
                here.append(os.dup(fd))
            elif ahead:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory")
            else:
                return _read_file(fd, mode)
        finally:
            os.close(fd)
    raise _NotAPlainFileError(errno.EISDIR, "no regular file")


def _read_file(fd: int, mode: int) -> bytes:
    if not stat.S_ISREG(mode):
        raise _NotAPlainFileError(errno.EINVAL, "no regular file")
    with Path(f"/proc/self/fd/{fd}").open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise _NotAPlainFileError(errno.EFBIG, f"larger than {MAX_FILE_BYTES} bytes")
    return content
