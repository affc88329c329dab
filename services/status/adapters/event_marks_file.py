"""Reads and writes the file that lists which events were recorded, and how often. It is on a tmpfs and may be lost."""

import logging
from pathlib import Path
from typing import Any

import orjson

from shared.files.atomic import remove_unfinished, write_atomically
from shared.text.json_text import json_bytes

log = logging.getLogger(__name__)

_VERSION = 1


class EventMarksFile:
    """The file `<run dir>/events/recorded.json`. Its methods block for as long as a tmpfs does."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "events" / "recorded.json"
        self._failed = ""

    def read(self) -> tuple[Any, Any]:
        """Return the marks and the counts that were last written, None where there are none that can be used."""
        try:
            remove_unfinished(self._path)
            record = orjson.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None, None
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read: %s; some events may be sent again", self._path, _why(error))
            return None, None
        version = record.get("version") if isinstance(record, dict) else None
        if not isinstance(version, int) or version < _VERSION:  # the known fields of a newer version are used
            return None, None
        return record.get("recorded"), record.get("counted")

    def write(self, recorded: dict[str, list[str]], counted: list[list[str | int | float]]) -> None:
        """Replace the file atomically, so that counts and marks agree. A failure is logged once; without the file some
        events are written once more after a restart."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._path, json_bytes({"version": _VERSION, "recorded": recorded, "counted": counted}))
            self._failed = ""
        except OSError as error:
            if self._failed != (why := _why(error)):
                self._failed = why
                log.warning("%s cannot be written: %s; a restart may send events again", self._path, why)


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "not JSON") or type(error).__name__
