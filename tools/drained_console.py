"""Gives supervisord a console that cannot fail: a pipe, which a thread drains into a file as far as the disk has room.

supervisord prints the errors of its own log to stderr, and ends when that print fails, too; so stderr must not be a
file."""

import contextlib
import os
import threading
from collections import deque
from pathlib import Path

_PIECE_BYTES = 65536  # of one read, as many as a pipe holds
_MAX_KEPT_PIECES = 16


class DrainedConsole:
    """The console of a process. Give `writer` to it as stdout and stderr, then call `close_writer`; the thread ends
    with the process."""

    def __init__(self, file: Path) -> None:
        self._reader, self.writer = os.pipe()
        self._file = file
        self._pieces: deque[bytes] = deque(maxlen=_MAX_KEPT_PIECES)
        self._thread = threading.Thread(target=self._drain, name="console", daemon=True)
        self._thread.start()

    def close_writer(self) -> None:
        """Close our copy of the writing end, which the process has now."""
        os.close(self.writer)

    def text(self) -> str:
        """Return what a process that has ended wrote last, also where the file has no room for it."""
        self._thread.join(2.0)
        return b"".join(self._pieces).decode(errors="replace").strip()

    def _drain(self) -> None:
        with os.fdopen(self._reader, "rb", buffering=0) as reader:
            while piece := reader.read(_PIECE_BYTES):
                self._pieces.append(piece)
                # The file is opened for each piece, because a full disk may have room later.
                with contextlib.suppress(OSError), self._file.open("ab", buffering=0) as file:
                    file.write(piece)
