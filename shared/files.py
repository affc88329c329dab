"""Files that are complete or absent after any crash: temp file, fsync, rename, fsync of the directory."""

import glob
import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the file at `path`; a reader or a crash sees the old or the new content, never a part. Raises OSError."""
    replace_file(path, content, mode)
    sync_directory(path.parent)


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """The same, but which content a crash of the machine leaves is open until `sync_directory`: for many files at once.
    Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            if content:
                os.posix_fallocate(fd, 0, len(content))  # a full disk speaks up here, not at fsync
            with open(fd, "wb", closefd=False) as file:
                file.write(content)
            os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
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
