"""Each process's own log file: klog's text form, written by a thread, never blocking and never through a pipe.

Code logs with `logging.getLogger(__name__)`: error, warning and info always show, debug from `-v=4`. When the disk or
the queue is full, lines are dropped and counted; a service never waits for its log. Knows nothing of what is logged.
"""

import faulthandler
import logging
import os
import queue
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import ClassVar

_QUEUE = 10_000
_BATCH = 500
_CHATTY = ("asyncio", "aiohttp", "grpc", "asyncinotify", "kubernetes", "urllib3")


class KlogFormatter(logging.Formatter):
    """`Lmmdd hh:mm:ss.uuuuuu PPPPPPP file.py:line] text` in local time (reference config.md 5.13).

    Further lines of one record are indented by a tab, so that no text can pass for a record of its own.
    """

    LETTERS: ClassVar[dict[int, str]] = {logging.CRITICAL: "F", logging.ERROR: "E", logging.WARNING: "W"}

    def format(self, record: logging.LogRecord) -> str:
        letter = self.LETTERS.get(record.levelno, "I")
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1e6)
        header = f"{letter}{stamp}.{micros:06d} {record.process or 0:>7} {record.filename}:{record.lineno}] "
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            text = f"{record.msg} [arguments do not fit: {record.args!r}]"
        if record.exc_info and record.exc_info[0]:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return header + text.replace("\n", "\n\t")


class LogFile(logging.Handler):
    """A handler that queues lines for its own thread; lines wait in the queue until `open` names the directory."""

    def __init__(self, name: str, max_bytes: int = 16 * 2**20, kept: int = 3, take_stdio: bool = True) -> None:
        super().__init__()
        self.setFormatter(KlogFormatter())
        self.dropped = 0
        self._name, self._max_bytes, self._kept, self._take_stdio = name, max_bytes, kept, take_stdio
        self._queue: queue.Queue[str | None] = queue.Queue(_QUEUE)
        self._path: Path | None = None
        self._fd = -1
        self._size = 0
        self._reopen = False
        self._opened, self._abandoned = threading.Event(), False
        self._thread = threading.Thread(target=self._drain, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._queue.put_nowait(self.format(record) + "\n")
        except queue.Full:
            self.dropped += 1

    def open(self, directory: str) -> None:
        """Write to `<directory>/<name>.log` from here on; raises OSError when that cannot be."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._path = folder / f"{self._name}.log"
        self._open_file()
        self._opened.set()

    def reopen(self) -> None:
        """Open the file anew before the next line: somebody moved it away."""
        self._reopen = True

    def finish(self, patience: float = 1.0) -> None:
        """Write what is queued, for at most `patience` seconds."""
        if not self._opened.is_set():
            self._abandoned = True
            self._opened.set()
        try:
            self._queue.put(None, timeout=patience)
        except queue.Full:
            return
        self._thread.join(patience)

    @property
    def fileno(self) -> int:
        """The open file, or the standard error before there is one; for dumps that must not wait for the thread."""
        return self._fd if self._fd >= 0 else 2

    def _open_file(self) -> None:
        assert self._path is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._path, flags, 0o600)
        if self._fd >= 0:
            os.dup2(fd, self._fd, inheritable=False)
            os.close(fd)
        else:
            self._fd = fd
        self._size = os.fstat(self._fd).st_size
        if self._take_stdio:
            os.dup2(self._fd, 1)
            os.dup2(self._fd, 2)

    def _drain(self) -> None:
        self._opened.wait()
        last = False
        while not last:
            lines = [self._queue.get()]
            while len(lines) < _BATCH and not self._queue.empty():
                lines.append(self._queue.get())
            last = None in lines
            if not self._abandoned:
                self._write([line for line in lines if line is not None])

    def _write(self, lines: list[str]) -> None:
        try:
            if self._reopen:
                self._reopen = False
                self._open_file()
            elif lines and self._size > self._max_bytes:
                self._rotate()
            if self.dropped:
                count, self.dropped = self.dropped, 0
                lines.append(
                    f"W{time.strftime('%m%d %H:%M:%S')}.000000 {os.getpid():>7} log.py:1] {count} lines lost\n"
                )
            if not lines:
                return
            text = "".join(lines).encode(errors="backslashreplace")
            self._size += os.write(self._fd, text)
        except OSError:
            self.dropped += len(lines)

    def _rotate(self) -> None:
        assert self._path is not None
        for number in range(self._kept - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.rename(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.rename(self._path.with_name(f"{self._path.name}.1"))
        self._open_file()


class Console:
    """The standard error the process was born with, for the few lines an operator must see there."""

    def __init__(self) -> None:
        self._fd = os.dup(2)

    def line(self, text: str) -> None:
        """Write one line; a closed or full pipe is no matter."""
        try:
            os.set_blocking(self._fd, False)
            os.write(self._fd, (text + "\n").encode(errors="backslashreplace"))
        except OSError:
            pass


def start_log(service: str, verbosity: int = 0) -> LogFile:
    """Send everything logged in this process to one LogFile, still closed; `open` it when the directory is known."""
    handler = LogFile(service)
    logging.getLogger().handlers[:] = [handler]
    logging.captureWarnings(True)
    set_verbosity(verbosity)
    return handler


def set_verbosity(verbosity: int) -> None:
    """`-v`: 0-3 info and above, 4 and more debug of our own, 8 and more debug of the libraries."""
    logging.getLogger().setLevel(logging.DEBUG if verbosity >= 4 else logging.INFO)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET if verbosity >= 8 else logging.WARNING)


def dump_stacks(handler: LogFile) -> None:
    """Write every thread's stack to the log at once, without the writing thread."""
    faulthandler.dump_traceback(file=handler.fileno, all_threads=True)


def watch_for_faults() -> None:
    """Have fatal signals (SIGSEGV …) leave the stacks in the log; call after `open`."""
    if sys.stderr is not None:
        faulthandler.enable(file=2)
