"""Decides what Go's file server answers for a file or directory: redirects, listing, type, conditions, range (server.md
14.1).

Opens no file. Multiple ranges are answered with the complete file, which HTTP permits.
"""

import mimetypes
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from urllib.parse import quote

from msgspec import Struct

_FIRST, _LAST = -62135596800, 253402300799  # seconds since the epoch of the years 1 to 9999
SNIFFED_BYTES = 512  # at the start of a file that decide its type where the name does not
_TYPES = mimetypes.MimeTypes()  # without the files of the machine
_RANGE = re.compile(r"([0-9]*)-([0-9]*)")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})
_SAFE = "/:@!$&'()*+,;=~"


class BadRangeError(Exception):
    """The Range header asks for nothing that the file has."""


class BodyPart(Struct, frozen=True):
    """The bytes of a file to send: `count` from `start`; `partial` = because of a Range header."""

    start: int
    count: int
    partial: bool = False


def slash_redirect(path: str, *, directory: bool) -> str | None:
    """Return the relative path that a request is redirected to, None for none; `path` begins with /."""
    if path.endswith("/index.html"):
        return "./"
    base = path.rstrip("/").rpartition("/")[2]
    if directory and not path.endswith("/"):
        return f"{base}/"
    return f"../{base}" if not directory and path.endswith("/") else None


def listing(entries: Iterable[tuple[str, bool]]) -> str:
    """Return the page of a directory; an entry is a name and whether it is a directory."""
    lines = []
    for name, directory in sorted(entries):
        shown = name + "/" * directory
        target = quote(shown.encode("utf-8", "surrogateescape"), safe=_SAFE)
        target = f"./{target}" if ":" in target.partition("/")[0] else target
        lines.append(f'<a href="{target.translate(_HTML)}">{shown.translate(_HTML)}</a>\n')
    head = '<!doctype html>\n<meta name="viewport" content="width=device-width">\n'
    return f"{head}<pre>\n{''.join(lines)}</pre>\n"


def content_type(name: str, head: bytes) -> str:
    """Return the media type by the name's extension, else by the first bytes."""
    kind, encoding = _TYPES.guess_type(name)
    if encoding == "gzip" or head.startswith(b"\x1f\x8b\x08"):
        return "application/gzip"
    if kind is None or encoding is not None:
        binary = any(byte < 0x20 and byte not in b"\t\n\x0c\r\x1b" for byte in head)
        kind = "application/octet-stream" if binary else "text/plain"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def http_date(seconds: float) -> str:
    """Return a time, in seconds since the epoch, as Last-Modified has it; a file may have one outside of the years 1 to
    9999, and gets the nearest of these."""
    return format_datetime(datetime.fromtimestamp(min(max(int(seconds), _FIRST), _LAST), UTC), usegmt=True)


def precondition(changed: float, modified_since: str, unmodified_since: str) -> int | None:
    """Return 304 or 412 where a condition decides; the headers are "" where they are absent. `changed`: time of the
    last change in seconds since the epoch."""
    before = _time(unmodified_since)
    if before is not None and int(changed) > before:
        return 412
    since = _time(modified_since)
    return 304 if since is not None and before is None and int(changed) <= since else None


def part_of(size: int, changed: float, asked: str, if_range: str) -> BodyPart:
    """Return what to send of a file of `size` bytes for a Range header ("" = absent). Raises BadRangeError."""
    everything = BodyPart(0, size)
    if not asked or (if_range and _time(if_range) != int(changed)):
        return everything
    unit, _, ranges = asked.partition("=")
    if unit.strip() != "bytes":
        raise BadRangeError("invalid range")
    if "," in ranges:
        return everything
    found = _RANGE.fullmatch(ranges.strip())
    if found is None or not any(found.groups()) or max(map(len, found.groups())) > 18:
        raise BadRangeError("invalid range")
    first, last = found.groups()
    if not first:
        count = min(int(last), size)
        return BodyPart(size - count, count, partial=True)
    start, end = int(first), min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        raise BadRangeError("invalid range")
    if start >= size:
        raise BadRangeError("invalid range: failed to overlap")
    return BodyPart(start, end - start + 1, partial=True)


def _time(header: str) -> float | None:
    try:
        return parsedate_to_datetime(header).timestamp() if header else None
    except (ValueError, OverflowError):
        return None
