"""Collects evidence of why a kubelet has not become ready: the state of its unit, and the last line it logged after its
restart."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from bus.messages.services import SERVICES
from services.cli.agent.service_logs import TIME_FORMAT, time_of
from services.cli.config.masking import without_credentials
from services.cli.systemd import control
from services.cli.systemd.unit import ServiceUnit
from shared.errors import OperatorError
from shared.text.plain_text import plain

_FILE_CLOCK_LAG_SECONDS = 0.1  # the clock that stamps files is up to a tick behind
_MAX_TAIL_BYTES = 64 << 10  # of each log file that are read
_MAX_LINE_CHARACTERS = 300  # of the line that are shown
_ERRORS = ("E", "F")  # the first letters of klog's lines for errors
# An error in the journal: a line of klog, or the line with which a process ends.
_ERROR = re.compile(r"[EF]\d{4} |bulkhead \w+: ")


class LastLine(Struct, frozen=True):
    """The line that was logged last, and its place; "" = nothing."""

    text: str = ""
    is_error: bool = False


def evidence(unit: ServiceUnit, name: str, log_dir: Path | None, since: float) -> list[str]:
    """Return the state of the unit, and the last error or line. `log_dir`: of the agent that is waited for, None = it
    is the unit's own kubelet; `since`: wall seconds of the restart.
    """
    lines = [last_line_of_agent(log_dir, since)] if log_dir is not None else []
    if not any(line.is_error for line in lines):  # processes that cannot write their logs write to the journal
        lines.append(last_line_of_journal(name, since))
    found = [line.text for line in sorted(lines, key=lambda line: not line.is_error) if line.text]
    return [unit_state(unit, name), *found[:1]]


def unit_state(unit: ServiceUnit, name: str) -> str:
    """Return the state of a unit as `kubelet.service is activating (start)`, and how often systemd started it again."""
    state = f"{name} is {unit.active_state} ({unit.sub_state})"
    if not unit.restarts:
        return state
    return f"{state}, systemd has started it again {unit.restarts} {'time' if unit.restarts == 1 else 'times'}"


def last_line_of_agent(log_dir: Path, since: float) -> LastLine:
    """Return the newest error that the services have logged since `since` (wall seconds), else their newest line, else
    that of supervisord."""
    begin, now = datetime.fromtimestamp(since).astimezone().strftime(TIME_FORMAT), datetime.now().astimezone()
    newest: tuple[bool, str, str, Path] | None = None
    for path in (log_dir / f"{service}.log" for service in SERVICES):
        for line in _tail_lines(path, since):
            if (moment := time_of(line, now)) >= begin:
                text = line.decode(errors="replace")
                found = (text.startswith(_ERRORS), moment, text, path)
                newest = max(newest or found, found)
    if newest is not None:
        return _mask_line(str(newest[3]), newest[2], is_error=newest[0])
    supervisord = log_dir / "supervisord.log"
    return _mask_line(str(supervisord), (list(_tail_lines(supervisord, since)) or [b""])[-1].decode(errors="replace"))


def last_line_of_journal(name: str, since: float) -> LastLine:
    """Return the newest error that the unit has in the journal, or without one its newest line."""
    try:
        lines = control.read_journal(name, since)
    except OperatorError:
        return LastLine()
    errors = [line for line in lines if _ERROR.match(line)]
    return _mask_line(f"journalctl -u {name}", (errors or lines or [""])[-1], is_error=bool(errors))


def _mask_line(where: str, line: str, *, is_error: bool = False) -> LastLine:
    """Return the line without what looks like a credential, because it goes to a record and to the output."""
    shown = plain(without_credentials(line.strip()))[:_MAX_LINE_CHARACTERS]
    return LastLine(f"the last line of {where} is: {shown}" if shown else "", is_error)


def _tail_lines(path: Path, since: float) -> Iterator[bytes]:
    """Yield the last lines of a file that was written since then; none where it cannot be read."""
    try:
        if path.stat().st_mtime < since - _FILE_CLOCK_LAG_SECONDS:
            return
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _MAX_TAIL_BYTES, 0))
            lines = file.read(_MAX_TAIL_BYTES).splitlines()
    except OSError:
        return
    yield from lines[1:] if size > _MAX_TAIL_BYTES else lines
