"""Copies Docker's JSON log of one container into the log that CRI promises, and goes on after a restart.

Nothing is kept but the two files: where a copy stopped is read from the end of CRI's. The entry with that time is then
looked for in Docker's files as a text, for the times of a log are in no order where the clock was set back. Only where
no file has it, because Docker has removed it, all entries of a later time are copied.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

from services.dockershim.adapters.statuses import nanoseconds_of
from services.dockershim.core.log_lines import (
    MAX_ENTRY_BYTES,
    LogEntry,
    cri_line,
    parse_entry,
    position_of,
)

_CHUNK_BYTES = 1024 * 1024  # read at a time
MAX_COPY_BYTES = 4 * 1024 * 1024  # read by one call of `copy`: a container may write faster than its log is copied
# Of a log that is read for its position, one size after another: one line of 16 MiB has 1024 entries.
_TAIL_BYTES = (64 * 1024, 1024 * 1024, 64 * 1024 * 1024)
_MAX_SOURCE_BYTES = 64 * 1024 * 1024  # of one file of Docker's, which begins another one at 16 MiB
LOG_MODE = 0o640
MAX_FILES = 5  # of Docker, which it may keep for one log


class LogCopy:
    """The copy of one log. `source` is Docker's file, `target` CRI's. The methods block; any thread may call them."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._is_placed = False  # whether the place is known where the copy goes on
        self._to_skip = 0  # of the next entries, which are in the target already
        self._copied_until = 0  # nanoseconds since the epoch: an entry of no later time is in the target already
        self._input = -1
        self._rest = b""
        self._output = -1
        self._is_last_look = False
        self.ended = False
        self._busy = threading.Lock()  # the files stay open for who uses them: a number that is closed is given again

    def open(self) -> None:
        """Open the target. Raises OSError."""
        self._open_target()

    def reopen(self) -> None:
        """Go on in a new file under the name of the target, which was renamed. Raises OSError; the next `copy` tries
        again to open it."""
        with self._busy:
            if not self.ended:
                self._close_target()
                self._open_target()
        self._close_if_ended()

    def copy(self) -> bool:
        """Copy what is there, MAX_COPY_BYTES of it at most. Returns whether that was all. Raises OSError, for instance
        where the disk is full: a later call goes on."""
        try:
            with self._busy:
                return self._copy()
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

    def _copy(self) -> bool:
        if self._output < 0 and not self.ended:
            self._open_target()
        if not self._is_placed:
            self._go_on()
        left = MAX_COPY_BYTES
        while left > 0 and not self.ended and (self._input >= 0 or self._open_source(self._source)):
            data = os.read(self._input, _CHUNK_BYTES)
            if data:
                self._take(data)
                left -= len(data)
            elif not self._next_source():
                break
        return left > 0

    def _go_on(self) -> None:
        """Open the file of Docker's in which the copy goes on, and learn what of it the target has."""
        position = position_of(_tail_lines(self._output, self._target))
        for path, _ in reversed(self._files()) if position.time else ():
            newer = self._input
            if not self._open_source(path):
                continue
            offset = _find_entry(self._input, position.time)
            unused = self._input if offset < 0 else newer
            if offset < 0:
                self._input = newer
            else:
                os.lseek(self._input, offset, os.SEEK_SET)
            if unused >= 0:
                os.close(unused)
            if self._input >= 0 and offset:
                break  # else entries of this time may also be in the file before it
        if self._input >= 0:
            self._to_skip = position.count
        else:
            self._copied_until = nanoseconds_of(position.time)
            if files := self._files():
                self._open_source(files[0][0])
        self._is_placed = True

    def _take(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        skipped = self._to_skip, self._copied_until
        entries = [entry for line in lines if (entry := parse_entry(line)) is not None and not self._is_copied(entry)]
        try:
            _write_all(self._output, b"".join(cri_line(entry) for entry in entries))
        except OSError:
            os.lseek(self._input, -len(data), os.SEEK_CUR)
            self._to_skip, self._copied_until = skipped
            raise
        self._rest = rest if len(rest) <= MAX_ENTRY_BYTES else b""

    def _is_copied(self, entry: LogEntry) -> bool:
        if self._to_skip:
            self._to_skip -= 1
            return True
        if nanoseconds_of(entry.time) <= self._copied_until:
            return True
        self._copied_until = 0
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
    """Return the last lines of the log, from one of another time on: of the file, and of the one before it if need be.

    A line that a kill left without its end is taken from the file: it is copied again.
    """
    size = os.fstat(descriptor).st_size
    lines: list[bytes] = []
    if size:
        lines, end = _last_lines(descriptor, size)
        os.ftruncate(descriptor, end)
        if len({_time_of(line) for line in lines}) > 1:
            return lines
    rotated = sorted(path for path in target.parent.glob(f"{target.name}.*") if path.suffix not in (".gz", ".tmp"))
    if not rotated:
        return lines
    with rotated[-1].open("rb") as file:
        return [*_last_lines(file.fileno(), os.fstat(file.fileno()).st_size)[0], *lines]


def _last_lines(descriptor: int, size: int) -> tuple[list[bytes], int]:
    """Return lines at the end, the first one of another time than the last, and where the last one ends."""
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
        if not start or len({_time_of(line) for line in lines}) > 1:
            break
    return lines, end


def _time_of(line: bytes) -> bytes:
    return line.partition(b" ")[0]


def _find_entry(descriptor: int, time: str) -> int:
    """Return where in this file of Docker's the first entry of this time begins, -1 = nowhere.

    What a container writes cannot be taken for it: Docker writes its quotation marks with a backslash before each.
    """
    content = os.pread(descriptor, _MAX_SOURCE_BYTES, 0)
    found = content.find(f'"time":"{time}"'.encode())
    return content.rfind(b"\n", 0, found) + 1 if found >= 0 else -1
