"""Finds the CDI devices that the machine's specification files have: those that the container runtime can resolve. All
calls block."""

from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from services.volume.core.resource_claims.cdi_devices import device_names
from shared.files.regular_file import read_regular_file
from shared.yaml_reader.reader import Limits, UnreadableError, read_documents

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")  # where container runtimes look by default
MAX_FILES = 1024  # of one directory; further ones are not read
MAX_FILE_BYTES = 4 << 20
_LIMITS = Limits(depth=64, values=200_000, characters=MAX_FILE_BYTES)


class _File(Struct, frozen=True):
    mark: tuple[int, int, int]  # inode, time of change and size, which differ after each write
    devices: frozenset[str]


class CdiSpecifications:
    """Reads the files, and each again only after it has changed. One that cannot be read has the devices that it had
    before, for it may be about to be written."""

    def __init__(self) -> None:
        self._files: dict[Path, _File] = {}

    def look(self) -> frozenset[str]:
        """Return the qualified names of all devices. Raises OSError for a directory that is there and cannot be
        read."""
        files: dict[Path, _File] = {}
        for directory in DIRECTORIES:
            for path in _files(Path(directory)):
                if (file := self._read(path)) is not None:
                    files[path] = file
        self._files = files
        return frozenset().union(*(file.devices for file in files.values()))

    def _read(self, path: Path) -> _File | None:
        known = self._files.get(path)
        try:
            found = path.stat()
            mark = (found.st_ino, found.st_mtime_ns, found.st_size)
            if known is not None and known.mark == mark:
                return known
            return _File(mark, device_names(_parsed(path)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, UnreadableError):
            return known


def _files(directory: Path) -> list[Path]:
    try:
        found = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [path for path in found if path.suffix in (".json", ".yaml")][:MAX_FILES]


def _parsed(path: Path) -> Any:
    """Return the content. Raises OSError, ValueError and UnreadableError."""
    content = read_regular_file(path, MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES >> 20} MiB")
    if path.suffix == ".json":
        return orjson.loads(content)
    return next(read_documents(content, _LIMITS), None)
