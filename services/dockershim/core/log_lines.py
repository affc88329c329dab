"""Lines of Docker's JSON log files as lines of CRI logs, and where to go on after a restart. Pure.

Docker divides long lines into entries of 16 KiB that have the time of the first one, so that a time alone does not say
how far a log was copied: the position is the time of the last entry and how many entries of that time were copied.
"""

from collections.abc import Iterable

import orjson
from msgspec import Struct

MAX_ENTRY_BYTES = 1024 * 1024  # of one line of Docker's file; Docker itself writes at most 16 KiB of a log in one


class LogPosition(Struct, frozen=True):
    """The last entry that was copied: its time as Docker wrote it, and how many entries have that time."""

    time: str = ""
    count: int = 0


class LogEntry(Struct, frozen=True):
    """One entry of Docker's file."""

    time: str
    stream: str
    text: str


def parse_entry(line: bytes) -> LogEntry | None:
    """Return the entry of one line of the file; None = the line is garbage."""
    try:
        content = orjson.loads(line)
        entry = LogEntry(content["time"], content["stream"], content["log"])
    except (ValueError, KeyError, TypeError):
        return None
    if entry.stream not in ("stdout", "stderr") or not all(isinstance(part, str) for part in (entry.time, entry.text)):
        return None
    return entry


def cri_line(entry: LogEntry) -> bytes:
    """Return the entry as CRI writes it: time, stream, P for a part of a line or F for its end, the text."""
    full = entry.text.endswith("\n")
    text = entry.text[:-1] if full else entry.text
    # A carriage return or another line break inside of the text stays; Docker ends an entry at "\n" only.
    return f"{entry.time} {entry.stream} {'F' if full else 'P'} {text}\n".encode("utf-8", "surrogatepass")


def advance(position: LogPosition, entry: LogEntry) -> LogPosition:
    """Return the position behind this entry."""
    return LogPosition(entry.time, position.count + 1 if entry.time == position.time else 1)


def position_of(lines: Iterable[bytes]) -> LogPosition:
    """Return the position behind the last lines of a CRI log, oldest first."""
    position = LogPosition()
    for line in lines:
        time, separator, _ = line.partition(b" ")
        if separator:
            position = advance(position, LogEntry(time.decode("utf-8", "replace"), "", ""))
    return position
