"""Decodes what a log request asks for: the query of /containerLogs, decoded and checked as the kubelet does.

server.md 10.1, 10.2. Must not know pods or files.
"""

import re
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from services.server.core.go_text import parse_int64, parse_query, quote

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LogQueryError(Exception):
    """The query is refused: `status` and `str()` are the answer."""

    def __init__(self, status: int, body: str) -> None:
        self.status = status
        super().__init__(body)


class LogQuery(Struct, frozen=True, kw_only=True):
    """PodLogOptions as the kubelet takes them; None = not given. `since_time` is nanoseconds since the epoch."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since_seconds: int | None = None
    since_time: int | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None
    stream: str = "All"  # All | Stdout | Stderr

    def since(self, now: float) -> int | None:
        """Return the time before which lines are left out, in nanoseconds since the epoch; None = none are. `now` is
        wall seconds."""
        if self.since_seconds is None:
            return self.since_time
        relative = int(now * 1e9) - self.since_seconds * 1_000_000_000
        return relative if self.since_time is None else max(relative, self.since_time)


def parse_log_query(raw: str) -> LogQuery:
    """Decode and check a raw query string. Raises LogQueryError: 400 = cannot be decoded, 422 = makes no sense."""
    values = parse_query(raw)
    tail = _first(values, "tail")
    if tail == "all":
        values.pop("tailLines", None)
    elif tail:
        values["tailLines"] = [tail]
    try:
        query = LogQuery(
            follow=_flag(values, "follow"),
            previous=_flag(values, "previous"),
            timestamps=_flag(values, "timestamps"),
            since_seconds=_number(values, "sinceSeconds"),
            since_time=_moment(values, "sinceTime"),
            tail_lines=_number(values, "tailLines"),
            limit_bytes=_number(values, "limitBytes"),
            stream=_first(values, "stream") or "All",
        )
    except ValueError as undecodable:
        raise LogQueryError(400, '{"message": "Unable to decode query."}') from undecodable
    if not _makes_sense(query):
        raise LogQueryError(422, '{"message": "Invalid request."}')
    return query


def check_stream_gate(query: LogQuery, *, split_streams: bool) -> None:
    """Refuse a single stream while the gate PodLogsQuerySplitStreams is off. Raises LogQueryError 400."""
    if query.stream != "All" and not split_streams:
        raise LogQueryError(
            400,
            f"unable to return the given log stream: {quote(query.stream)}. "
            "Please enable PodLogsQuerySplitStreams feature gate in kubelet",
        )


def parse_rfc3339(text: str) -> int:
    """Return an RFC3339 time with any number of fractional digits, as nanoseconds since the epoch. Raises
    ValueError."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"parsing time {quote(text)}")
    *date, fraction, sign, hours, minutes = match.groups()
    year, month, day, hour, minute, second = (int(part) for part in date)
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    seconds = moment // timedelta(seconds=1)
    if sign:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds += offset if sign == "-" else -offset
    return seconds * 1_000_000_000 + int((fraction or "")[:9].ljust(9, "0"))


def _makes_sense(query: LogQuery) -> bool:
    return (
        (query.tail_lines is None or query.tail_lines >= 0)
        and (query.limit_bytes is None or query.limit_bytes >= 1)
        and (query.since_seconds is None or query.since_seconds >= 1)
        and (query.since_seconds is None or query.since_time is None)
        and query.stream in ("All", "Stdout", "Stderr")
        and (query.stream == "All" or query.tail_lines is None)
    )


def _first(values: dict[str, list[str]], key: str) -> str:
    return values.get(key, [""])[0]


def _flag(values: dict[str, list[str]], key: str) -> bool:
    return key in values and values[key][0].lower() not in ("0", "false")


def _number(values: dict[str, list[str]], key: str) -> int | None:
    return parse_int64(values[key][0]) if key in values else None


def _moment(values: dict[str, list[str]], key: str) -> int | None:
    text = _first(values, key)
    return parse_rfc3339(text) if text not in ("", "null") else None
