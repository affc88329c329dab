"""Reads container log files in threads, so that a slow disk or a long log never delays another answer.

Decides nothing about content: blocks go through the decoder, in the thread, and come back as bytes for the client.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from services.server.adapters.log_opening import LogFile
from services.server.core.go_text import quote
from services.server.core.logs.log_format import LogDecoder, find_tail_start

T = TypeVar("T")

_BLOCK_BYTES = 256 << 10  # read, decoded and written at a time


class LogReadError(Exception):
    """The file cannot be read; `str()` is the kubelet's text, sent in the body."""


class LogReader:
    """Reads one log file, across rotations. Only one call may run at a time, but `close` may come while it runs."""

    def __init__(self, log: LogFile, threads: ThreadPoolExecutor) -> None:
        self._log = log
        self._threads = threads
        self._file: FileIO | None = None
        self._running: Future[Any] | None = None
        self._closed = False

    @property
    def path(self) -> str:
        """The path of the log; once the file is open, without the links that were followed."""
        return self._log.path

    async def open(self, tail_lines: int | None) -> None:
        """Open the file at its start or `tail_lines` from its end. Raises LogReadError."""
        await self._in_thread(lambda: self._open(tail_lines))

    async def advance(self, decoder: LogDecoder) -> tuple[bytes, bool]:
        """Return the next output, and whether the end was reached. When the file was replaced, it is first read to its
        end; then the file that was written next follows. Raises LogReadError, UnsupportedLogFormatError."""
        return await self._in_thread(lambda: self._advance(decoder))

    def close(self) -> None:
        """Close the file, after a call that still runs in its thread has ended."""
        self._closed = True
        if self._running is None:
            self._close_file()
        else:
            self._running.add_done_callback(lambda _: self._close_file())

    async def _in_thread(self, call: Callable[[], T]) -> T:
        running = self._threads.submit(call)
        self._running = running
        return await asyncio.wrap_future(running)

    def _open(self, tail_lines: int | None) -> None:
        try:
            if not self._log.pod_directory:
                self._log = LogFile(str(Path(self.path).resolve(strict=True)))
            file = self._file = self._log.open()
        except (FileNotFoundError, RuntimeError) as error:  # pathlib reports a loop of symlinks as RuntimeError
            raise LogReadError(
                f"failed to try resolving symlinks in path {quote(self.path)}: {_text('lstat', error)}"
            ) from error
        except OSError as error:
            raise LogReadError(f"failed to open log file {quote(self.path)}: {_text('open', error)}") from error
        if tail_lines is None:
            return
        try:
            size = os.fstat(file.fileno()).st_size
            file.seek(find_tail_start(lambda offset, length: os.pread(file.fileno(), length, offset), size, tail_lines))
        except OSError as error:
            text = f"failed to tail {tail_lines} lines of log file {quote(self.path)}: {_text('read', error)}"
            raise LogReadError(text) from error

    def _advance(self, decoder: LogDecoder) -> tuple[bytes, bool]:
        file = self._file
        if file is None or self._closed:
            return b"", True
        try:
            block = file.read(_BLOCK_BYTES)
            if not block and self._log.is_another(file):
                # Between the empty read and the replacement the old file may have grown.
                block = file.read(_BLOCK_BYTES)
                if not block:
                    decoder.restart()
                    self._file = self._log.open_next(file)
                    file.close()
                    return b"", False
        except OSError as error:
            raise LogReadError(f"failed to read log file {quote(self.path)}: {_text('read', error)}") from error
        return (decoder.feed(block), False) if block else (b"", True)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _text(call: str, error: BaseException) -> str:
    """Return an error as Go prints one of the file system: `open /path: no such file or directory`."""
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename}" if error.filename else ""
        return f"{call}{where}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return f"{call}: {error}"
