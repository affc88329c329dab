"""`bulkhead logs --service` prints the logs of services, merged by time and filtered by pod, and can follow them.

It reads files, so it works while the agent is down. A record is a line together with its continuation lines."""

import heapq
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from io import BufferedReader
from pathlib import Path

import orjson
from asyncinotify import Inotify, Mask

from bus.messages.services import SERVICES
from services.cli.terminal.table import Paint, paint
from shared.agent.places import find_places
from shared.config.excerpt import load_excerpt
from shared.errors import OperatorError

Write = Callable[[str], None]
# The time as `time_of` returns it, the number of the service, and the text without its last line break.
Record = tuple[str, int, str]

TIME_FORMAT = "%Y%m%d %H:%M:%S.%f"
_HEADER = re.compile(rb"[IWEF](\d{4} \d\d:\d\d:\d\d\.\d{6}) ")
_MAX_LINE_BYTES = 1 << 20  # a longer line is divided
_MAX_RECORD_LINES = 1000  # a longer record is divided
_MAX_ROTATION = 9  # the highest number of a rotated file


def show_service_logs(
    run_dir: str, services: Sequence[str], pod: str, tail: int | None, follow: bool, out: Write, err: Write
) -> int:
    """Print the records of the services in order of time; `pod`: only those with this text. Return the exit code."""
    directory = Path(run_dir or find_places().run_dir).absolute()
    try:
        log_dir = Path(load_excerpt(str(directory)).log_dir)
    except OperatorError as error:
        err(str(error))
        return 1
    except OSError as error:
        err(f"{directory}/config.json: cannot be read: {error.strerror} (start the agent, or name it with --run-dir)")
        return 1
    logs = [ServiceLog(log_dir, service) for service in services]
    colour, names = paint(), max(len(service) for service in services) if len(services) > 1 else 0

    def show(records: Iterable[Record]) -> int:
        number = 0
        for record in records:
            out(_shown(record, names, colour))
            number += 1
        return number

    try:
        with Inotify() as inotify:
            if follow:
                inotify.add_watch(log_dir, Mask.MODIFY | Mask.CREATE | Mask.MOVED_TO)
            merged = _matching(heapq.merge(*(log.history() for log in logs), key=lambda record: record[:2]), pod)
            if not show(merged if tail is None else deque(merged, maxlen=tail)) and tail != 0 and not follow:
                err(f"{log_dir}: no record" + (f" contains {pod!r}" if pod else ""))
            while follow:
                inotify.sync_get()
                show(_matching(sorted(record for log in logs for record in log.growth()), pod))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        err(f"{error.filename or log_dir}: cannot be read: {error.strerror} (run this as the user of the agent)")
        return 1
    finally:
        for log in logs:
            log.close()
    return 0


class ServiceLog:
    """The log file of one service with the rotated ones before it."""

    def __init__(self, directory: Path, service: str) -> None:
        self._path, self._number = directory / f"{service}.log", SERVICES.index(service)
        self._file: BufferedReader | None = None
        self._rest = b""  # the beginning of a line whose end is not written yet
        self._time = ""  # the time of the record that a continuation line belongs to

    def history(self) -> Iterator[Record]:
        """Yield all records of the log. Raises OSError for a file that may not be read."""
        for number in range(_MAX_ROTATION, 0, -1):
            rotated = self._path.with_name(f"{self._path.name}.{number}")
            if rotated.exists():
                with rotated.open("rb") as file:
                    yield from self._records(file)
        yield from self.growth()

    def growth(self) -> Iterator[Record]:
        """Yield the records that were written since the last call, also across a rotation."""
        while True:
            if self._file is None:
                if not self._path.exists():
                    return
                self._file = self._path.open("rb")
            yield from self._records(self._file)
            if not self._was_rotated():
                return
            yield from self._records(self._file)  # these were written between the last read and the rotation
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _was_rotated(self) -> bool:
        assert self._file is not None
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False  # it was renamed, and the new file is not there yet

    def _records(self, file: BufferedReader) -> Iterator[Record]:
        lines: list[bytes] = []
        now = datetime.now().astimezone()
        for line in iter(lambda: file.readline(_MAX_LINE_BYTES), b""):
            if not line.endswith(b"\n") and len(line) < _MAX_LINE_BYTES:
                self._rest += line
                break
            line, self._rest = self._rest + line, b""
            time = time_of(line, now)
            if lines and (time or len(lines) == _MAX_RECORD_LINES):
                yield self._record(lines)
                lines = []
            self._time = time or self._time
            lines.append(line)
        if lines:
            yield self._record(lines)

    def _record(self, lines: list[bytes]) -> Record:
        return self._time, self._number, b"".join(lines).decode(errors="backslashreplace").removesuffix("\n")


def time_of(line: bytes, now: datetime) -> str:
    """Return `yyyymmdd hh:mm:ss.uuuuuu` of the first line of a record, in local time; "" for a continuation line.

    A line of klog has no year: it gets the newest year that makes it no later than tomorrow."""
    if found := _HEADER.match(line):
        moment = found[1].decode()
        tomorrow = now + timedelta(days=1)
        return f"{tomorrow.year if moment[:4] <= f'{tomorrow:%m%d}' else tomorrow.year - 1}{moment}"
    if line.startswith(b"{"):
        try:
            exact = datetime.fromtimestamp(orjson.loads(line)["ts"] / 1000).astimezone()
        except (ValueError, KeyError, TypeError, OverflowError, OSError):
            return ""
        return exact.strftime(TIME_FORMAT)
    return ""


def _matching(records: Iterable[Record], pod: str) -> Iterator[Record]:
    return (record for record in records if pod in record[2])


def _shown(record: Record, names: int, colour: Paint) -> str:
    if not names:
        return record[2]
    name = colour.service(record[1], f"{SERVICES[record[1]]:{names}}")
    return "\n".join(f"{name} | {line}" for line in record[2].split("\n"))
