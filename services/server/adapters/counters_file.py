"""Keeps the counters of `/metrics` in a file of the run directory, so that a restarted server continues with them.

It belongs to one generation, a supervisord and the processes that it started: with the next one all counters begin
again, as those of a kubelet do. A file that is missing or damaged costs what processes that have ended had counted.
"""

import logging
from pathlib import Path

import msgspec
from msgspec import Struct

from services.server.core.metrics.gathered_metrics import Counters
from shared.files.atomic import remove_unfinished, write_atomically
from shared.text.json_text import json_bytes

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 16 << 20  # an idle node has 25 KiB


class _Saved(Struct, frozen=True, kw_only=True):
    generation: str
    counters: Counters


class CountersFile:
    """The file `metrics.json` below `run_dir`; only a server of the same generation (`services.frame.generation`) reads
    it."""

    def __init__(self, run_dir: Path, generation: str) -> None:
        self._path, self._generation = run_dir / "metrics.json", generation
        self._failing = False

    def read(self) -> Counters | None:
        """Return what a server of this generation saved last, or None. A damaged file is logged and counts as none.
        Also remove what an interrupted write left behind."""
        try:
            remove_unfinished(self._path)
            with self._path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
            if len(content) > MAX_FILE_BYTES:
                raise ValueError(f"it is larger than {MAX_FILE_BYTES} bytes")
            saved = msgspec.json.decode(content, type=_Saved)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            log.warning("the counters of /metrics begin again: %s cannot be read: %s", self._path, error)
            return None
        return saved.counters if saved.generation == self._generation else None

    def write(self, counters: Counters) -> None:
        """Replace the file. A failure is logged once and never raised: the old file stays."""
        try:
            content = json_bytes(_Saved(generation=self._generation, counters=counters))
            if len(content) > MAX_FILE_BYTES:
                raise ValueError(f"{len(content)} bytes are more than {MAX_FILE_BYTES}")
            write_atomically(self._path, content)
        except (OSError, ValueError) as error:
            if not self._failing:
                log.warning("the counters of /metrics fall if server restarts now: %s: %s", self._path, error)
            self._failing = True
        else:
            self._failing = False
