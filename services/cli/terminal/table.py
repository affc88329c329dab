"""Forms tables and marks for a terminal or a file: fits columns into a width, and colours words only for a terminal.
Pure except for the three functions at the end."""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

from shared.text.byte_size import byte_size
from shared.text.plain_text import plain

_CLEAR = "\x1b[H\x1b[2J"  # moves the cursor home and clears everything after it
_GAP_COLUMNS = 2
_MIN_COLUMN_CHARACTERS = 4  # that a shortened column keeps


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 0, *, wraps: bool = False) -> list[str]:
    """Return lines of aligned columns, without control characters. `width`: no line is longer, the widest columns are
    shortened first; 0 = any width. `wraps`: the last column has sentences that are continued in further lines instead
    of being cut, in that column where it has a third of the width, else indented."""
    if wraps and width:
        return _wrapped(header, rows, width)
    cells = [list(header), *[[plain(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    if width:
        gaps = _GAP_COLUMNS * (len(widths) - 1)
        while sum(widths) + gaps > width and max(widths) > _MIN_COLUMN_CHARACTERS:
            widest = widths.index(max(widths))
            rest = max((size for number, size in enumerate(widths) if number != widest), default=0)
            too_many = sum(widths) + gaps - width
            widths[widest] -= max(1, min(too_many, widths[widest] - max(rest, _MIN_COLUMN_CHARACTERS)))
    lines = []
    for row in cells:
        shown = [shorten_text(cell, size).ljust(size) for cell, size in zip(row, widths, strict=True)]
        lines.append(shorten_text((" " * _GAP_COLUMNS).join(shown).rstrip(), width))
    return lines


def _wrapped(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    last = [plain(row[-1]) for row in rows]
    before = [line.rstrip() for line in table(header[:-1], [row[:-1] for row in rows], width)]
    begin = max(map(len, before), default=0) + _GAP_COLUMNS
    room = width - begin
    if room < width // 3:
        lines = [before[0]]
        for line, text in zip(before[1:], last, strict=True):
            lines += [line, *(f"    {part}" for part in wrap_text(text, width, 4) if part)]
        return lines
    lines = [f"{before[0]:{begin}}{shorten_text(header[-1], room)}".rstrip()]
    for line, text in zip(before[1:], last, strict=True):
        first, *rest = wrap_text(text, room)
        lines += [f"{line:{begin}}{first}".rstrip(), *(f"{'':{begin}}{part}" for part in rest)]
    return lines


def wrap_text(text: str, width: int, indent: int = 0) -> list[str]:
    """Return the text in lines of at most `width - indent` characters, at least one line; `width` 0 = one line."""
    return (textwrap.wrap(text, max(width - indent, 1)) if width else [text]) or [""]


def shorten_text(text: str, width: int) -> str:
    """Return the text, cut to `width` characters and marked where it was cut; 0 = any length."""
    return text if not width or len(text) <= width else text[: max(width - 1, 0)] + "~"


def size(number: int | None) -> str:
    """Return bytes as `12 MiB`; None as `-`."""
    if number is None:
        return "-"
    return byte_size(number)


def screen(lines: Sequence[str], height: int) -> str:
    """Return the lines for a terminal with `height` rows that is cleared first: those that fit, and how many are
    missing."""
    room = max(height - 1, 2)  # the cursor needs the last row
    shown = list(lines)
    if len(shown) > room:
        shown = [*shown[: room - 1], f"{len(shown) - room + 1} more lines (all are shown without -w)"]
    return _CLEAR + "\n".join(shown)


def duration(seconds: float | None) -> str:
    """Return seconds as `0.4s`, `12s`, `5m`, `3h`, `2d`; None as `-`."""
    if seconds is None:
        return "-"
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, length, limit in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"


class Paint:
    """Colours words for a terminal; without a terminal every word stays as it is."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def good(self, text: str) -> str:
        """Return the word in green."""
        return self._in("32", text)

    def bad(self, text: str) -> str:
        """Return the word in bold red."""
        return self._in("1;31", text)

    def dim(self, text: str) -> str:
        """Return the word in grey."""
        return self._in("2", text)

    def service(self, number: int, text: str) -> str:
        """Return the name of a service in one of seven colours."""
        return self._in(str(31 + number % 6) if number < 6 else "1;36", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on and text else text


def terminal_width() -> int:
    """Return the columns of standard output; 0 = it is no terminal, so lines may have any width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def terminal_height() -> int:
    """Return the number of rows of the terminal; 0 = standard output is none."""
    return shutil.get_terminal_size().lines if sys.stdout.isatty() else 0


def paint() -> Paint:
    """Return the colours for standard output: none unless it is a terminal and neither NO_COLOR nor TERM=dumb is
    set."""
    return Paint(sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")
