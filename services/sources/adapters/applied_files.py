"""Reads and writes the directory of applied objects, one file for each object. It decides nothing; all calls
block."""

import contextlib
import re
from pathlib import Path

from shared.agent.apply_api import MAX_APPLIED_BYTES
from shared.files.atomic import sync_directory, write_atomically

_UNFINISHED = re.compile(r"\.[a-z]+\.[-a-z0-9]+\..+\.[0-9]+\.tmp")


class AppliedFiles:
    """The files of applied objects. File names come from `Identity.file_name`. All methods raise OSError."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def sizes(self) -> dict[str, int]:
        """Return the size of each file in bytes, by name; unfinished writes are left out."""
        try:
            entries = [entry for entry in self.directory.iterdir() if not entry.name.startswith(".")]
        except FileNotFoundError:
            return {}
        sizes: dict[str, int] = {}
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                sizes[entry.name] = entry.lstat().st_size
        return sizes

    def read(self, name: str) -> bytes | None:
        """Return the content, one byte more than the limit at most; None = there is no such file."""
        try:
            with (self.directory / name).open("rb") as file:
                return file.read(MAX_APPLIED_BYTES + 1)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replace the file; after this returns, a crash of the machine does not lose it."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self.directory / name, content)

    def remove_unfinished(self) -> None:
        """Remove temporary files that a kill left, which may contain Secrets. Call it before the first write."""
        for left in self.directory.glob(".*.tmp"):
            if _UNFINISHED.fullmatch(left.name):
                left.unlink(missing_ok=True)

    def remove(self, name: str) -> bool:
        """Remove the file; return whether there was one."""
        try:
            (self.directory / name).unlink()
        except FileNotFoundError:
            return False
        sync_directory(self.directory)
        return True
