"""Reads and writes the record of the device plugins' sockets, which the next process needs, and removes the sockets of
plugins that must register again. Its calls block.
"""

import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import orjson

from shared.files.atomic import remove_unfinished, write_atomically

_MAX_RECORD_BYTES = 1 << 20


class DevicePluginRecord:
    """Keeps, in the record at `path`, the socket of the plugin of each resource, "" where none is known."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[str, str]:
        """Return the sockets by resource; {} without a record. Raises OSError, and ValueError for a damaged one."""
        try:
            with self.path.open("rb") as file:
                content = file.read(_MAX_RECORD_BYTES + 1)
        except FileNotFoundError:
            return {}
        if len(content) > _MAX_RECORD_BYTES:
            raise ValueError("it is too long")
        found = orjson.loads(content)
        if not isinstance(found, dict) or not all(isinstance(endpoint, str) for endpoint in found.values()):
            raise ValueError("it is not an object of strings")
        return found

    def save(self, endpoints: Mapping[str, str]) -> None:
        """Write the record in place of the one before. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_unfinished(self.path)
        write_atomically(self.path, orjson.dumps(dict(endpoints), option=orjson.OPT_SORT_KEYS))


def remove_sockets(directory: Path, kept: Collection[str]) -> None:
    """Remove each socket in the directory whose path is not among `kept`. Its plugin, if it runs, registers again: it
    watches the directory. Raises OSError."""
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            if str(path) not in kept and stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
