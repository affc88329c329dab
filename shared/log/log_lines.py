"""From a log record to a line: what is kept of a record while it waits, and the two forms it can be written in.

The form may be chosen after the record was made: lines wait until the configuration is known. Writes nothing.
"""

import logging
import os
import time
import traceback
from typing import ClassVar, NamedTuple, Protocol

from shared.log.klog import Structured, folded_text, json_line, shortened_json, text_body, text_header

_LETTERS = {logging.CRITICAL: "F", logging.ERROR: "E", logging.WARNING: "W"}


class Entry(NamedTuple):
    """What is kept of a record: nothing of it changes any more."""

    created: float  # seconds since the epoch
    letter: str  # I, W, E, F
    verbosity: int
    path: str
    line: int
    message: str
    err: str = ""
    stack: str = ""


def entry_of(record: logging.LogRecord, verbosity: int = 0) -> Entry:
    """Take from a record what its line needs. Never raises."""
    message = record.msg
    if message == "%s" and type(record.args) is tuple and len(record.args) == 1 and type(record.args[0]) is Structured:
        message = record.args[0]
    elif type(message) is not Structured or record.args:
        try:
            message = record.getMessage()
        except Exception:
            message = f"{record.msg} [arguments do not fit: {record.args!r}]"
    err = stack = ""
    if record.exc_info and record.exc_info[0]:
        stack = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        err = "".join(traceback.format_exception_only(*record.exc_info[:2])).rstrip()
    letter = _LETTERS.get(record.levelno, "I")
    return Entry(record.created, letter, verbosity, record.pathname, record.lineno, message, err, stack)


class LogFormat(Protocol):
    """How entries look."""

    def line(self, entry: Entry) -> str:
        """Return the entry as text that ends with its only line break that begins a record."""
        ...

    def pieces(self, line: str, limit: int) -> list[bytes]:
        """Return the line for a stream where only `limit` bytes at once stay together."""
        ...


class TextFormat:
    """klog's text, in local time; the file is preceded by the service, for each has a `service.py`."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._second, self._stamp, self._process = -1, "", os.getpid()

    def line(self, entry: Entry) -> str:
        """Return the header and the message, a traceback on further lines."""
        second = int(entry.created)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%m%d %H:%M:%S", time.localtime(second))
        stamp = f"{self._stamp}.{int(entry.created % 1 * 1e6):06d}"
        file = _file_of(self._service, entry)
        text = text_header(entry.letter, stamp, self._process, file, entry.line) + text_body(entry.message)
        return f"{text}\n\t{text_body(entry.stack)}\n" if entry.stack else f"{text}\n"

    def pieces(self, line: str, limit: int) -> list[bytes]:
        """Divide a long record between its lines, and a long line anywhere."""
        encoded = line.encode(errors="backslashreplace")
        return [encoded] if len(encoded) <= limit else folded_text(encoded, limit)


class JsonFormat:
    """klog's JSON; `logger` is the service, and `caller` begins with it."""

    _WITH_VERBOSITY: ClassVar[tuple[str, ...]] = ("I", "W")  # klog hands warnings on as info

    def __init__(self, service: str) -> None:
        self._service = service

    def line(self, entry: Entry) -> str:
        """Return one object."""
        caller = _file_of(self._service, entry)
        verbosity = entry.verbosity if entry.letter in self._WITH_VERBOSITY else None
        message, err, stack = entry.message, entry.err, entry.stack
        return json_line(entry.created, f"{caller}:{entry.line}", message, verbosity, err, stack, self._service) + "\n"

    def pieces(self, line: str, limit: int) -> list[bytes]:
        """Return a long record without its fields and the end of its message."""
        encoded = line.encode()
        return [encoded] if len(encoded) <= limit else [shortened_json(line, limit - 1) + b"\n"]


def _file_of(service: str, entry: Entry) -> str:
    """`podsync/service.py`."""
    return f"{service}/{entry.path.rpartition('/')[2]}"


def form_of(logging_format: str, service: str) -> LogFormat:
    """Return the form `logging.format` names: text or json."""
    return JsonFormat(service) if logging_format == "json" else TextFormat(service)
