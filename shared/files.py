"""Files that are complete or absent after any crash: temp file, fsync, rename, fsync of the directory."""

import glob
import itertools
import os
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


SYNCS_AT_ONCE = 16  # files that the disk is to store at the same time: together they take little longer than one


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the file at `path`; a reader or a crash sees the old or the new content, never a part. Raises OSError."""
    write_all_atomically(path.parent, {path.name: content}, mode)


def write_all_atomically(directory: Path, contents: Mapping[str, bytes], mode: int = 0o600) -> None:
    """The same for many files of a directory, by name. Raises OSError: then some of them may be replaced."""
    names = iter(contents)
    while some := [*itertools.islice(names, SYNCS_AT_ONCE)]:
        _replace({directory / name: contents[name] for name in some}, mode)
    sync_directory(directory)


def _replace(contents: Mapping[Path, bytes], mode: int) -> None:
    """Replace the files. Which content a crash of the machine leaves is open until `sync_directory`."""
    temporaries = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in contents}
    descriptors: list[int] = []
    try:
        for path, content in contents.items():
            with _named(path):
                descriptors.append(os.open(temporaries[path], _NEW, mode))
                _fill(descriptors[-1], content, mode)
        if len(descriptors) == 1:
            _sync(descriptors[0], *contents)
        else:
            with ThreadPoolExecutor(len(descriptors), thread_name_prefix="sync") as threads:
                deque(threads.map(_sync, descriptors, contents), maxlen=0)
        for path, temporary in temporaries.items():
            with _named(path):
                temporary.rename(path)
    except OSError:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
        raise
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _fill(descriptor: int, content: bytes, mode: int) -> None:
    if content:
        os.posix_fallocate(descriptor, 0, len(content))  # a full disk speaks up here, not at fsync
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.fchmod(descriptor, mode)


def _sync(descriptor: int, path: Path) -> None:
    with _named(path):
        os.fsync(descriptor)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Not every call names its file in its error."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
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
