"""The file with the samples of the last hour, in the run directory: a restarted process continues the charts with it.

Nothing decides by it. A file that is missing, damaged or too large is as good as none.
"""

import logging
from pathlib import Path
from typing import Any

import orjson

from shared.files.atomic import remove_unfinished, write_atomically

log = logging.getLogger(__name__)

_MAX_FILE_BYTES = 1 << 20  # bytes; an hour of all series has 70 KiB


class NodeHistoryFile:
    """`node-history.json` below `run_dir`."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "node-history.json"

    def read(self) -> Any:
        """Return the saved data, or None. Removes what an interrupted write left."""
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
