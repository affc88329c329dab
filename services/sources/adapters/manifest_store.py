"""The directory of submitted manifests: one file for each object; decides nothing. All calls block."""

import contextlib
import re
from pathlib import Path

from services.sources.core.submitted import LARGEST
from shared.files.atomic import sync_directory, write_atomically

_UNFINISHED = re.compile(r"\.[a-z]+\.[-a-z0-9]+\..+\.[0-9]+\.tmp")


class ManifestStore:
    """File names come from `Identity.file_name`. All methods raise OSError."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by name; unfinished writes are not among them."""
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
        """The content, one byte more than the limit at most; None = there is no such file."""
        try:
            with (self.directory / name).open("rb") as file:
                return file.read(LARGEST + 1)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replace the file; when this returns, a crash of the machine does not lose it."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self.directory / name, content)

    def remove_unfinished(self) -> None:
        """Remove what writes left that a kill cut short: it may be a Secret. Only before the first write."""
        for left in self.directory.glob(".*.tmp"):
            if _UNFINISHED.fullmatch(left.name):
                left.unlink(missing_ok=True)

    def remove(self, name: str) -> bool:
        """Remove the file; False = there was none."""
        try:
            (self.directory / name).unlink()
        except FileNotFoundError:
            return False
        sync_directory(self.directory)
        return True
