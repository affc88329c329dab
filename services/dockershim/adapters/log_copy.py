"""Copies Docker's JSON log of one container into the log that CRI promises, and goes on after a restart.

Nothing is kept but the two files: where a copy stopped is read from the end of CRI's.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

from services.dockershim.adapters.statuses import nanoseconds_of
from services.dockershim.core.log_lines import (
    MAX_ENTRY_BYTES,
    LogEntry,
    LogPosition,
    cri_line,
    parse_entry,
    position_of,
)

_CHUNK_BYTES = 1024 * 1024  # read at a time
# Of a log that is read for its position, one size after another: one line of 16 MiB has 1024 entries.
_TAIL_BYTES = (64 * 1024, 1024 * 1024, 64 * 1024 * 1024)
LOG_MODE = 0o640
MAX_FILES = 5  # of Docker, which it may keep for one log


class LogCopy:
    """The copy of one log. `source` is Docker's file, `target` CRI's. The methods block; any thread may call them."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._skipped_from: LogPosition | None = None  # entries up to here are in the target already
        self._skipped = 0
        self._input = -1
        self._rest = b""
        self._output = -1
        self._is_last_look = False
        self.ended = False
        self._busy = threading.Lock()  # the files stay open for who uses them: a number that is closed is given again

    def open(self) -> None:
        """Open the target, and find where the copy stopped. Raises OSError."""
        self._open_target()
        position = position_of(_tail_lines(self._output, self._target))
        self._skipped_from = position if position.time else None
        if files := self._files():
            self._open_source(files[0][0])

    def reopen(self) -> None:
        """Go on in a new file under the name of the target, which was renamed. Raises OSError; the next `copy` tries
        again to open it."""
        with self._busy:
            if not self.ended:
                self._close_target()
                self._open_target()
        self._close_if_ended()

    def copy(self) -> None:
        """Copy what is there. Raises OSError, for instance where the disk is full: a later call goes on."""
        try:
            with self._busy:
                self._copy()
        finally:
            self._close_if_ended()

    def close(self) -> None:
        """Close both files; where a thread copies, it closes them after the piece that it has."""
        self.ended = True
        self._close_if_ended()

    def _close_if_ended(self) -> None:
        if self.ended and self._busy.acquire(blocking=False):
            try:
                self._close_target()
                if self._input >= 0:
                    os.close(self._input)
                    self._input = -1
            finally:
                self._busy.release()

    def _copy(self) -> None:
        if self._output < 0 and not self.ended:
            self._open_target()
        while not self.ended and (self._input >= 0 or self._open_source(self._source)):
            data = os.read(self._input, _CHUNK_BYTES)
            if data:
                self._take(data)
            elif not self._next_source():
                return

    def _take(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        skipped = self._skipped_from, self._skipped
        entries = [entry for line in lines if (entry := parse_entry(line)) is not None and not self._is_copied(entry)]
        try:
            _write_all(self._output, b"".join(cri_line(entry) for entry in entries))
        except OSError:
            os.lseek(self._input, -len(data), os.SEEK_CUR)
            self._skipped_from, self._skipped = skipped
            raise
        self._rest = rest if len(rest) <= MAX_ENTRY_BYTES else b""

    def _is_copied(self, entry: LogEntry) -> bool:
        if self._skipped_from is None:
            return False
        last, now = nanoseconds_of(self._skipped_from.time), nanoseconds_of(entry.time)
        if now < last:
            return True
        if now == last and self._skipped < self._skipped_from.count:
            self._skipped += 1
            return True
        self._skipped_from = None
        return False

    def _next_source(self) -> bool:
        """Go on with the file that Docker has begun after this one; False = this one is the newest.

        What Docker wrote between the end that was read here and its rotation is read first.
        """
        here = os.fstat(self._input)
        files = self._files()
        place = next((n for n, (_, stat) in enumerate(files) if os.path.samestat(stat, here)), None)
        if not files or place == len(files) - 1:
            return False
        if not self._is_last_look:
            self._is_last_look = True
            return True
        os.close(self._input)
        self._input = -1
        return self._open_source(files[0 if place is None else place + 1][0])

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """Return Docker's files of this log, oldest first."""
        names = [self._source, *(self._source.with_name(f"{self._source.name}.{n}") for n in range(1, MAX_FILES))]
        files = []
        for path in reversed(names):
            with suppress(FileNotFoundError):
                files.append((path, path.stat()))
        return files

    def _open_source(self, path: Path) -> bool:
        try:
            self._input = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        self._rest = b""
        self._is_last_look = False
        return True

    def _open_target(self) -> None:
        self._output = os.open(
            self._target, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, LOG_MODE
        )

    def _close_target(self) -> None:
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


def _write_all(descriptor: int, data: bytes) -> None:
    """Write whole lines, or nothing."""
    if not data:
        return
    size = os.fstat(descriptor).st_size
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _tail_lines(descriptor: int, target: Path) -> list[bytes]:
    """Return the last lines of the log, from one of an earlier time on: of the file, or of the one before it.

    A line that a kill left without its end is taken from the file: it is copied again.
    """
    size = os.fstat(descriptor).st_size
    if size:
        lines, end = _last_lines(descriptor, size)
        os.ftruncate(descriptor, end)
        return lines
    rotated = sorted(path for path in target.parent.glob(f"{target.name}.*") if path.suffix not in (".gz", ".tmp"))
    if not rotated:
        return []
    with rotated[-1].open("rb") as file:
        return _last_lines(file.fileno(), os.fstat(file.fileno()).st_size)[0]


def _last_lines(descriptor: int, size: int) -> tuple[list[bytes], int]:
    """Return lines at the end, the first one of an earlier time than the last, and where the last one ends."""
    lines: list[bytes] = []
    end = size
    for wanted in _TAIL_BYTES:
        start = max(size - wanted, 0)
        data = os.pread(descriptor, size - start, start)
        whole, _, torn = data.rpartition(b"\n")
        lines = whole.split(b"\n") if whole else []
        if start:
            lines = lines[1:]
        end = size - len(torn)
        if not start or len({line.partition(b" ")[0] for line in lines}) > 1:
            break
    return lines, end
