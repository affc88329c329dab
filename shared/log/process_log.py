"""Each process's own log file, and a copy to the operator's stream where there is one; never blocking the process.

Code logs with `logging.getLogger(__name__)`: error, warning and info always show, debug from `-v=4`,
`log.log(verbose(n), …)` from `-v=n`; a message with fields is `log.info(structured("…", pod=…))`. When the disk or the
queue is full, lines are dropped and counted; a service never waits for its log. Knows nothing of what is logged.
"""

import faulthandler
import logging
import os
import queue
import sys
import threading
import time
from pathlib import Path

from shared.log.log_copy import CopyTarget, StreamCopy, adopt_stream
from shared.log.log_lines import Entry, LogFormat, TextFormat, entry_of
from shared.log.log_verbosity import CHATTY, Verbosity

STDERR_VARIABLE, STDOUT_VARIABLE = "BULKHEAD_STDERR_FD", "BULKHEAD_STDOUT_FD"  # numbers of inherited descriptors
_MAX_QUEUED_RECORDS = 10_000
_MAX_BATCH_RECORDS = 500  # that are written at a time


class LogFile(logging.Handler):
    """A handler that queues entries for its own thread; they wait in the queue until `open` names the directory.

    A file of `max_bytes` is rotated; `kept` is the number of rotated files."""

    def __init__(self, name: str, max_bytes: int = 16 * 2**20, kept: int = 3, take_stdio: bool = True) -> None:
        super().__init__()
        self.dropped = 0
        self.service = name
        self._max_bytes, self._kept, self._take_stdio = max_bytes, kept, take_stdio
        self._form: LogFormat = TextFormat(name)
        self._verbosity = Verbosity()
        self.stderr: StreamCopy | None = None  # where copies go besides the file
        self.stdout: StreamCopy | None = None  # and those of info, when `configure` splits them off
        self._split = False
        self._queue: queue.Queue[Entry | threading.Event | None] = queue.Queue(_MAX_QUEUED_RECORDS)
        self._path: Path | None = None
        self._fd = -1
        self._size = 0
        self._torn = self._reopen = False
        self._opened, self._abandoned = threading.Event(), False
        self._thread = threading.Thread(target=self._drain, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take the record, or count it as lost; what is less important than `-v` asks for is passed over."""
        verbosity = self._verbosity.level_of(record)
        if verbosity is None:
            return
        try:
            self._queue.put_nowait(entry_of(record, verbosity))
        except queue.Full:
            self.dropped += 1

    def flush(self) -> None:
        """Wait until all that is queued now was written or given up; at once while the directory is not known."""
        if not self._opened.is_set():
            return
        passed, queued = threading.Event(), False
        while not passed.is_set() and self._thread.is_alive():
            if queued:
                passed.wait(0.5)
                continue
            try:
                self._queue.put(passed, timeout=0.5)
                queued = True
            except queue.Full:
                pass

    def configure(self, form: LogFormat, verbosity: Verbosity, split: bool = False) -> None:
        """Set how lines look, also those that wait already, and which records are taken from now on. `split`: info goes
        to stdout."""
        self._form, self._verbosity, self._split = form, verbosity, split

    def open(self, directory: str) -> None:
        """Write to `<directory>/<name>.log` from here on; raises OSError when that cannot be, and lines wait on."""
        folder = Path(directory)
        self._path = folder / f"{self.service}.log"
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._open_file()
        self._opened.set()

    def go_without_file(self) -> None:
        """After `open` failed: the copies get their lines, and the file those that come once it can be opened."""
        self._opened.set()

    def reopen(self) -> None:
        """Open the file again before the next line: it was moved away."""
        self._reopen = True

    def finish(self, timeout: float = 1.0) -> None:
        """Write what is queued, for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        if not self._opened.is_set():
            self._abandoned = True
            self._opened.set()
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)
        for copy in (self.stderr, self.stdout):
            if copy:
                copy.finish(max(deadline - time.monotonic(), 0.1))

    @property
    def fileno(self) -> int:
        """The descriptor of the open file, or of the standard error before there is one; for dumps that must not
        wait for the thread."""
        return self._fd if self._fd >= 0 else 2

    def lost_line(self, count: int) -> str:
        """Return the line that stands for `count` others."""
        return self._form.line(Entry(time.time(), "W", 0, __file__, 1, f"{count} lines lost"))

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
        self._torn = False
        if self._take_stdio:
            os.dup2(self._fd, 1)
            os.dup2(self._fd, 2)

    def _drain(self) -> None:
        self._opened.wait()
        last = False
        while not last:
            taken = [self._queue.get()]
            while len(taken) < _MAX_BATCH_RECORDS and not self._queue.empty():
                taken.append(self._queue.get())
            last = None in taken
            if not self._abandoned:
                entries = [item for item in taken if isinstance(item, Entry)]
                lines = [self._line(entry) for entry in entries]
                self._write(lines)
                if self.stderr:
                    self._copy(entries, lines)
            for item in taken:
                if isinstance(item, threading.Event):
                    item.set()

    def _line(self, entry: Entry) -> str:
        try:
            return self._form.line(entry)
        except Exception:  # this thread must outlive any record
            return self.lost_line(1)

    def _write(self, lines: list[str]) -> None:
        lost, self.dropped = self.dropped, 0
        report = [self.lost_line(lost)] if lost else []
        text = "".join([*lines, *report]).encode(errors="backslashreplace")
        try:
            if self._reopen or self._fd < 0:
                self._reopen = False
                self._open_file()
            elif lines and self._size > self._max_bytes:
                self._rotate()
            data = b"\n" + text if self._torn and text else text
            written = os.write(self._fd, data) if data else 0
        except OSError:
            self.dropped += lost + len(lines)
            return
        self._size += written
        if written:
            self._torn = data[written - 1] != ord("\n")
        if written < len(data):  # the disk became full within
            self.dropped += data.count(b"\n", written) - len(report) + lost

    def _copy(self, entries: list[Entry], lines: list[str]) -> None:
        for entry, line in zip(entries, lines, strict=True):
            copy = self.stdout if self._split and self.stdout and entry.letter == "I" else self.stderr
            if copy and not copy.given_up:
                copy.put(self._form.pieces(line, copy.limit))

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
        self._outlet = CopyTarget(os.dup(2))

    def line(self, text: str) -> None:
        """Write one line; a closed or full pipe is no matter."""
        try:
            self._outlet.write((text + "\n").encode(errors="backslashreplace"))
        except OSError:
            pass


def start_log(service: str, verbosity: int = 0) -> LogFile:
    """Send everything logged in this process to one LogFile, still closed; `open` it when the directory is known.
    `verbosity`: the level of `-v`."""
    handler = LogFile(service)

    def lost(count: int) -> bytes:
        return handler.lost_line(count).encode()

    handler.stderr = adopt_stream(os.environ.get(STDERR_VARIABLE, ""), lost)
    handler.stdout = adopt_stream(os.environ.get(STDOUT_VARIABLE, ""), lost)
    logging.getLogger().handlers[:] = [handler]
    logging.captureWarnings(True)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # in no line, and not for nothing
    handler.configure(TextFormat(service), Verbosity(verbosity))
    set_levels(Verbosity(verbosity))
    return handler


def set_levels(verbosity: Verbosity) -> None:
    """From which level on loggers make records at all. What holds already is not set again: each time every logger of
    the process forgets what it knew, which in a fork costs a page for each."""
    libraries = logging.NOTSET if verbosity.libraries else logging.WARNING
    levels = {"": verbosity.root_level} | dict.fromkeys(CHATTY, libraries)
    for name, level in levels.items():
        if (logger := logging.getLogger(name)).level != level:
            logger.setLevel(level)


def dump_stacks(handler: LogFile) -> None:
    """Write every thread's stack to the log at once, without the writing thread."""
    faulthandler.dump_traceback(file=handler.fileno, all_threads=True)


def watch_for_faults() -> None:
    """Have fatal signals (SIGSEGV …) leave the stacks in the log; call after `open`."""
    if sys.stderr is not None:
        faulthandler.enable(file=2)
