"""Decodes a query of `/logs/`, and decides which queries are refused (server.md 14.2). Pure."""

import re
from collections.abc import Callable
from datetime import datetime

import orjson
from msgspec import Struct

from services.server.core.go_text import parse_int64, parse_query, quote

MAX_SERVICES = 4
MAX_SERVICE_CHARACTERS = 256
MAX_LINES = 100_000
MAX_PATTERN_CHARACTERS = 4096
_SERVICE = re.compile(r"[a-zA-Z\-_.:0-9@]*")
_First = Callable[[str], str]  # the first value of a key, "" without one
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")


class NodeLogQueryError(Exception):
    """The query is refused; `str()` is the body, `status` 400 or 406."""

    def __init__(self, status: int, errors: list[str]) -> None:
        super().__init__(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        self.status = status


class NodeLogQuery(Struct, frozen=True, kw_only=True):
    """A query; `file` "" = the logs of `services`. Times keep the offset that the client gave."""

    services: tuple[str, ...] = ()
    file: str = ""
    since: datetime | None = None
    until: datetime | None = None
    boot: int | None = None
    tail_lines: int | None = None
    pattern: str = ""

    @property
    def has_options(self) -> bool:
        """Whether it asks for less than everything."""
        numbers = self.since, self.until, self.boot, self.tail_lines
        return bool(self.pattern) or any(value is not None for value in numbers)

    def journal_command(self) -> list[str]:
        """Return the command that prints what the journal has of the services."""
        command = ["journalctl", "--utc", "--no-pager", "--output=short-precise"]
        command += [f"--since={_as_given(self.since)}"] if self.since else []
        command += [f"--until={_as_given(self.until)}"] if self.until else []
        command += ["--pager-end", f"--lines={self.tail_lines}"] if self.tail_lines is not None else []
        command += [f"--unit={service}" for service in self.services]
        command += [f"--grep={self.pattern}"] if self.pattern else []
        return command + (["--boot", str(self.boot)] if self.boot is not None else [])


def parse_node_log_query(raw: str) -> NodeLogQuery | None:
    """Return the query of a raw query string, None where it has none. Raises NodeLogQueryError."""
    values, errors = parse_query(raw), list[str]()

    def first(key: str) -> str:
        return values.get(key, [""])[0]

    asked = values.get("query", [])
    files = [each for each in asked if "/" in each or "\\" in each]
    services = [each for each in asked if each not in files and each.strip()]
    if asked and not files and not services:
        errors.append(f"query: Invalid value: {listed(asked)}: query cannot be empty")
    since, until = _time("sinceTime", first, errors), _time("untilTime", first, errors)
    boot, lines = _integer("boot", first, errors), _integer("tailLines", first, errors)
    if errors:
        raise NodeLogQueryError(400, errors)
    query = NodeLogQuery(
        services=tuple(services),
        file=files[0] if files else "",
        since=since,
        until=until,
        boot=boot,
        tail_lines=lines,
        pattern=first("pattern"),
    )
    if not asked and not query.has_options:
        return None
    if errors := _refused(query, files):
        raise NodeLogQueryError(406, errors)
    return query


def _refused(query: NodeLogQuery, files: list[str]) -> list[str]:
    errors = [error for service in query.services if (error := _bad_service(service))]
    if len(query.services) > MAX_SERVICES:
        errors.append(f"query: Too many: {len(query.services)}: must have at most {MAX_SERVICES} items")
    if not files and not query.services:
        errors.append("query: Required value: cannot be empty with options")
    elif files and query.services:
        both = f"[{' '.join(files)}], [{' '.join(query.services)}]"
        errors.append(f"query: Invalid value: {quote(both)}: cannot specify a file and service")
    elif len(files) > 1:
        errors.append(f"query: Invalid value: {listed(files)}: cannot specify more than one file")
    elif files and query.has_options:
        errors.append(f"query: Invalid value: {listed(files)}: cannot specify file with options")
    if query.since and query.until and query.since > query.until:
        errors.append(f"untilTime: Invalid value: {_printed(query.until)}: must be after `sinceTime`")
    if query.boot is not None and query.boot > 0:
        errors.append(f"boot: Invalid value: {query.boot}: must be less than 1")
    if query.tail_lines is not None and not 0 <= query.tail_lines <= MAX_LINES:
        errors.append(f"tailLines: Invalid value: {query.tail_lines}: must be between 0 and {MAX_LINES}, inclusive")
    if reason := _bad_pattern(query.pattern):
        errors.append(f"pattern: Invalid value: {quote(query.pattern[:MAX_PATTERN_CHARACTERS])}: {reason}")
    return errors


def _bad_service(service: str) -> str | None:
    if len(service) > MAX_SERVICE_CHARACTERS:
        shown = quote(service[:MAX_SERVICE_CHARACTERS])
        return f"query: Invalid value: {shown}: length must be less than {MAX_SERVICE_CHARACTERS}"
    if not _SERVICE.fullmatch(service):
        return f"query: Invalid value: {quote(service)}: input contains unsupported characters"
    return None


def _bad_pattern(pattern: str) -> str | None:
    """Return why the pattern is none. It is read as UTF-8 bytes, for journalctl compiles it again: of characters,
    each class that leaves ASCII becomes a table of 65536 entries, and 600 of them would take seconds."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return f"may not be more than {MAX_PATTERN_CHARACTERS} characters"
    if "\0" in pattern:
        return "error parsing regexp: contains a NUL character"
    try:
        re.compile(pattern.encode("utf-8", "replace"))
    except (re.error, RecursionError, OverflowError) as error:
        return f"error parsing regexp: {error}"
    return None


def _time(key: str, first: _First, errors: list[str]) -> datetime | None:
    text = first(key)
    try:
        if text and not _TIME.fullmatch(text):
            raise ValueError
        return datetime.fromisoformat(text[:19] + text[19 + len(_fraction(text)) :]) if text else None
    except ValueError:
        errors.append(f"{key}: Invalid value: {quote(text)}: invalid time format")
        return None


def _fraction(text: str) -> str:
    """Return the fraction of the seconds in a time. It may have more digits than Python reads, because journalctl gets
    whole seconds only."""
    found = re.match(r"[.,]\d+", text[19:])
    return found[0] if found else ""


def _integer(key: str, first: _First, errors: list[str]) -> int | None:
    text = first(key)
    try:
        return parse_int64(text) if text else None
    except ValueError as error:
        errors.append(f"{key}: Invalid value: {quote(text)}: strconv.Atoi: {error}")
        return None


def listed(values: list[str]) -> str:
    """Return the values as JSON."""
    return orjson.dumps([value.encode("utf-8", "replace").decode() for value in values]).decode()


def _as_given(moment: datetime) -> str:
    """Return Go's layout `2006-1-2 15:4:5`, without a conversion of the zone."""
    at = moment
    return f"{at.year}-{at.month}-{at.day} {at.hour}:{at.minute}:{at.second}"


def _printed(moment: datetime) -> str:
    offset = moment.strftime("%z")
    return f"{moment.strftime('%Y-%m-%d %H:%M:%S')} {offset} {'UTC' if offset == '+0000' else offset}"
