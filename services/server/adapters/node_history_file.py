"""Keeps the samples of the last hour in a file of the run directory, so that a restarted process continues the charts.

No decision depends on them: a file that is missing, damaged or too large counts as none."""

import logging
from pathlib import Path
from typing import Any

import orjson

from shared.files.atomic import remove_unfinished, write_atomically

log = logging.getLogger(__name__)

_MAX_FILE_BYTES = 1 << 20  # all series of one hour have 70 KiB


class NodeHistoryFile:
    """The file `node-history.json` below `run_dir`."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "node-history.json"

    def read(self) -> Any:
        """Return the saved data, or None. Also remove what an interrupted write left behind."""
        try:
            remove_unfinished(self._path)
            with self._path.open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
            return orjson.loads(content) if len(content) <= _MAX_FILE_BYTES else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.debug("%s cannot be read: %s", self._path, error)
            return None

    def write(self, data: dict[str, Any]) -> None:
        """Replace the file. An error is logged: the next minute tries again."""
        try:
            write_atomically(self._path, orjson.dumps(data))
        except OSError as error:
            log.debug("%s cannot be written: %s", self._path, error)
