"""Files that are complete or absent after any crash: temp file, fsync, rename, fsync of the directory."""

import glob
import os
import stat
from pathlib import Path

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the file at `path`; a reader or a crash sees the old or the new content, never a part. Raises OSError."""
    replace(path, content, mode)
    sync_directory(path.parent)


def replace(path: Path, content: bytes, mode: int) -> None:
    """Write the file as `write_atomically` does; but until `sync_directory` a crash of the machine may leave the
    content before it. A full disk is an error before the rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, _NEW, mode)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # the umask took some of it
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # not every call names its file
        raise


def remove_unfinished(path: Path) -> None:
    """Remove what writes of `path` left that a crash cut short. Only where no other process writes it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        left.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make renames and removals in `directory` last."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
