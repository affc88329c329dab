"""A console for supervisord that cannot fail: a pipe, drained by a thread into a file as far as the disk has room.

supervisord prints the errors of its own log to stderr and dies when that print fails, too; so stderr must be no file.
"""

import contextlib
import os
import threading
from collections import deque
from pathlib import Path

_PIECE = 65536  # bytes, what a pipe holds
_PIECES_KEPT = 16


class DrainedConsole:
    """Give `writer` to a process as stdout and stderr, then call `close_writer`; the end of the process ends it."""

    def __init__(self, file: Path) -> None:
        self._reader, self.writer = os.pipe()
        self._file = file
        self._pieces: deque[bytes] = deque(maxlen=_PIECES_KEPT)
        self._thread = threading.Thread(target=self._drain, name="console", daemon=True)
        self._thread.start()

    def close_writer(self) -> None:
        """Leave the other end to the process that got it."""
        os.close(self.writer)

    def text(self) -> str:
        """What a process that has ended had written last, also where the file has no room for it."""
        self._thread.join(2.0)
        return b"".join(self._pieces).decode(errors="replace").strip()

    def _drain(self) -> None:
        with os.fdopen(self._reader, "rb", buffering=0) as reader:
            while piece := reader.read(_PIECE):
                self._pieces.append(piece)
                # Opened for each piece: a disk too full to make the file may have room later.
                with contextlib.suppress(OSError), self._file.open("ab", buffering=0) as file:
                    file.write(piece)
