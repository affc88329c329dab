"""Reads and writes the records of pulls on disk: `image_manager/{pulling,pulled}/sha256-<hex>` (pods.md 7.6).

A file that cannot be read as a record counts as none, and is logged once. Writing raises OSError. Decides nothing.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from services.podsync.core.images.image_records import (
    PulledRecord,
    RecordError,
    decode_intent,
    decode_record,
    encode_intent,
    encode_record,
    file_name,
)
from shared.files.atomic import sync_directory, write_atomically

T = TypeVar("T")
log = logging.getLogger(__name__)

_MAX_BYTES = 4 << 20


class ImageRecordFiles:
    """Keeps the records below the kubelet's root directory. Only one thread at a time may use it."""

    def __init__(self, root_dir: Path) -> None:
        self._pulling, self._pulled = root_dir / "image_manager" / "pulling", root_dir / "image_manager" / "pulled"
        self._reported: set[Path] = set()

    def intents(self) -> list[str]:
        """Return the images that were being pulled, and remove files that a kill left half-written."""
        for leftover in (*self._pulling.glob("*.tmp"), *self._pulled.glob("*.tmp")):
            with suppress(OSError):
                leftover.unlink()
        intents = (self._read(path, decode_intent) for path in _files(self._pulling))
        return [image for image in intents if image is not None]

    def has_intent(self, image: str) -> bool:
        """Return whether a pull of the image was begun whose outcome is not known."""
        return (self._pulling / file_name(image)).exists()

    def write_intent(self, image: str) -> None:
        """Record that the image is about to be pulled."""
        self._write(self._pulling / file_name(image), encode_intent(image))

    def remove_intent(self, image: str) -> None:
        """Remove the intent: the outcome of the pull is known, and recorded where it was a success."""
        self._remove(self._pulling / file_name(image))

    def pulled(self, image_ref: str) -> PulledRecord | None:
        """Return the record of the image; None where there is none that can be read."""
        return self._read(self._pulled / file_name(image_ref), decode_record)

    def pulled_refs(self) -> list[str]:
        """Return the reference of every record that can be read."""
        records = (self._read(path, decode_record) for path in _files(self._pulled))
        return [record.image_ref for record in records if record is not None]

    def write_pulled(self, record: PulledRecord) -> None:
        """Write the record, in place of an earlier one of the same image."""
        self._write(self._pulled / file_name(record.image_ref), encode_record(record))

    def remove_pulled(self, image_ref: str) -> None:
        """Remove the record of an image that the runtime no longer has."""
        self._remove(self._pulled / file_name(image_ref))

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, content, 0o600)
        self._reported.discard(path)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink()
        except FileNotFoundError:
            return
        sync_directory(path.parent)

    def _read(self, path: Path, decode: Callable[[bytes], T]) -> T | None:
        """Return what `decode` makes of the file's content; None where there is no file or no record."""
        try:
            with path.open("rb") as file:
                return decode(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, RecordError) as error:
            if path not in self._reported:
                self._reported.add(path)
                why = error.strerror if isinstance(error, OSError) else error
                log.warning("%s counts as no record of a pull: %s (remove it)", path, why)
            return None


def _files(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from sorted(directory.glob("sha256-*"))
