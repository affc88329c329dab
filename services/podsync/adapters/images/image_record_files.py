"""The records of pulls on disk: `image_manager/{pulling,pulled}/sha256-<hex>` (pods.md 7.6).

A file that cannot be read as a record counts as none, and is logged once. Writing raises OSError. Decides nothing.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

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

log = logging.getLogger(__name__)

_LARGEST = 4 << 20  # bytes


class ImageRecordFiles:
    """Below the kubelet's root directory. Not to be used from two threads at a time."""

    def __init__(self, root_dir: Path) -> None:
        self._pulling, self._pulled = root_dir / "image_manager" / "pulling", root_dir / "image_manager" / "pulled"
        self._reported: set[Path] = set()

    def intents(self) -> list[str]:
        """The images that were being pulled. What a kill left of a half-written file is removed."""
        for leftover in (*self._pulling.glob("*.tmp"), *self._pulled.glob("*.tmp")):
            with suppress(OSError):
                leftover.unlink()
        return [decode_intent(content) for path in _files(self._pulling) if (content := self._content(path, True))]

    def has_intent(self, image: str) -> bool:
        """A pull of the image was begun and its outcome is not known."""
        return (self._pulling / file_name(image)).exists()

    def write_intent(self, image: str) -> None:
        """The image is about to be pulled."""
        self._write(self._pulling / file_name(image), encode_intent(image))

    def remove_intent(self, image: str) -> None:
        """The outcome of the pull is known, and recorded where it was a success."""
        self._remove(self._pulling / file_name(image))

    def pulled(self, image_ref: str) -> PulledRecord | None:
        """The record of the image; None where there is none that can be read."""
        content = self._content(self._pulled / file_name(image_ref), False)
        return decode_record(content) if content else None

    def pulled_refs(self) -> list[str]:
        """The reference of every record that can be read."""
        contents = (self._content(path, False) for path in _files(self._pulled))
        return [decode_record(content).image_ref for content in contents if content]

    def write_pulled(self, record: PulledRecord) -> None:
        """Put the record in place of the one of the same image."""
        self._write(self._pulled / file_name(record.image_ref), encode_record(record))

    def remove_pulled(self, image_ref: str) -> None:
        """The image is no longer here."""
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

    def _content(self, path: Path, intent: bool) -> bytes | None:
        """What the file holds, once it is known to be a record."""
        try:
            with path.open("rb") as file:
                content = file.read(_LARGEST)
            decode_intent(content) if intent else decode_record(content)
        except FileNotFoundError:
            return None
        except (OSError, RecordError) as error:
            if path not in self._reported:
                self._reported.add(path)
                why = error.strerror if isinstance(error, OSError) else error
                log.warning("%s counts as no record of a pull: %s (remove it)", path, why)
            return None
        return content


def _files(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from sorted(directory.glob("sha256-*"))
