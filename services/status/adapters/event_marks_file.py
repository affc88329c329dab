"""The file in the run directory that says which events were recorded: on a tmpfs, and no loss when it is lost."""

import logging
from pathlib import Path
from typing import Any

import orjson

from shared.files import write_atomically

_log = logging.getLogger(__name__)

_VERSION = 1


class EventMarksFile:
    """`<run dir>/events/recorded.json`. Blocks for as long as a tmpfs does."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "events" / "recorded.json"
        self._failed = ""

    def read(self) -> Any:
        """What was last written; None where there is nothing of use."""
        try:
            record = orjson.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("%s cannot be read: %s; some events may be sent again", self._path, _why(error))
            return None
        if not isinstance(record, dict) or record.get("version") != _VERSION:
            return None
        return record.get("recorded")

    def write(self, recorded: dict[str, list[str]]) -> None:
        """Replace it. A failure is logged once and costs nothing but requests."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._path, orjson.dumps({"version": _VERSION, "recorded": recorded}))
            self._failed = ""
        except OSError as error:
            if self._failed != (why := _why(error)):
                self._failed = why
                _log.warning("%s cannot be written: %s; a restart may send events again", self._path, why)


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "not JSON") or type(error).__name__
