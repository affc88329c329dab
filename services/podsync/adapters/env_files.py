"""Reads the files of variables that a container's environment names, out of the pod's mounted volumes.

What is in a volume was written by a pod: its links are followed as if the volume were the whole filesystem, so that no
path leads out of it, and only a regular file of bounded size is read. What the text means is `core.env_file`'s to say.
"""

import errno
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from services.podsync.core.container_mounts import MountedVolume
from services.podsync.core.env_file import parse_env_file
from services.podsync.core.environment import UNREADABLE_ENV_FILE, EnvFile, EnvFiles, environment_files
from shared.model.objects import Object

log = logging.getLogger(__name__)

LARGEST = 1 << 20  # bytes
_MOST_LINKS = 40  # as the kernel


class _LeadsNowhereError(OSError):
    """Too many links, or no plain file."""


def read_env_files(container: Object, volumes: Mapping[str, MountedVolume]) -> EnvFiles:
    """Every file of `environment_files` whose volume is mounted, read or with the reason why not. Never raises."""
    wanted = environment_files(container)
    return {(name, path): _read(volumes[name].host_path, path) for name, path in wanted if name in volumes}


def _read(volume: str, path: str) -> EnvFile:
    try:
        return EnvFile(parse_env_file(read_inside(Path(volume), path).decode()))
    except (FileNotFoundError, NotADirectoryError):
        return EnvFile({}, missing=True)
    except (OSError, ValueError) as error:  # EnvFileError among them, and a path that no file can have
        why = "it is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        log.warning("environment file %s in %s: %s", path, volume, why)
        return EnvFile({}, error=UNREADABLE_ENV_FILE)


def read_inside(root: Path, path: str) -> bytes:
    """The content of a regular file, at most LARGEST bytes; links and `..` never lead out of `root`. Raises OSError."""
    here = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]  # the way from the root to where we stand
    try:
        return _walk(here, path)
    finally:
        for fd in here:
            os.close(fd)


def _walk(here: list[int], path: str) -> bytes:
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
                if links > _MOST_LINKS:
                    raise _LeadsNowhereError(errno.ELOOP, "too many links")
                target = os.readlink("", dir_fd=fd)
                if target.startswith("/"):
                    while len(here) > 1:
                        os.close(here.pop())
                ahead += [name for name in target.split("/") if name not in ("", ".")][::-1]
            elif ahead and stat.S_ISDIR(mode):
                here.append(os.dup(fd))
            elif ahead:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory")
            else:
                return _content(fd, mode)
        finally:
            os.close(fd)
    raise _LeadsNowhereError(errno.EISDIR, "no regular file")


def _content(fd: int, mode: int) -> bytes:
    if not stat.S_ISREG(mode):
        raise _LeadsNowhereError(errno.EINVAL, "no regular file")
    with Path(f"/proc/self/fd/{fd}").open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise _LeadsNowhereError(errno.EFBIG, f"larger than {LARGEST} bytes")
    return content
