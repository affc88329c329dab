"""Tables and marks for a terminal or a file: fits columns into a width, colours only for a terminal. Pure but for the
three questions at the end."""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

from shared.text.byte_size import byte_size
from shared.text.plain_text import plain

_CLEAR = "\x1b[H\x1b[2J"  # home, and everything from there
_GAP = 2
_NARROWEST = 4  # characters that a shortened column keeps


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 0, *, wraps: bool = False) -> list[str]:
    """Return lines of aligned columns, without control characters. `width`: no line is longer, the widest columns are
    shortened first; 0 = any width. `wraps`: the last column has sentences, of which nothing is cut: they go on in the
    lines below, in that column where it has a third of the width, else indented.
    """
    if wraps and width:
        return _wrapped(header, rows, width)
    cells = [list(header), *[[plain(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    if width:
        gaps = _GAP * (len(widths) - 1)
        while sum(widths) + gaps > width and max(widths) > _NARROWEST:
            widest = widths.index(max(widths))
            rest = max((size for number, size in enumerate(widths) if number != widest), default=0)
            too_many = sum(widths) + gaps - width
            widths[widest] -= max(1, min(too_many, widths[widest] - max(rest, _NARROWEST)))
    lines = []
    for row in cells:
        shown = [shortened(cell, size).ljust(size) for cell, size in zip(row, widths, strict=True)]
        lines.append(shortened((" " * _GAP).join(shown).rstrip(), width))
    return lines


def _wrapped(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    last = [plain(row[-1]) for row in rows]
    before = [line.rstrip() for line in table(header[:-1], [row[:-1] for row in rows], width)]
    begin = max(map(len, before), default=0) + _GAP
    room = width - begin
    if room < width // 3:
        lines = [before[0]]
        for line, text in zip(before[1:], last, strict=True):
            lines += [line, *(f"    {part}" for part in wrapped(text, width, 4) if part)]
        return lines
    lines = [f"{before[0]:{begin}}{shortened(header[-1], room)}".rstrip()]
    for line, text in zip(before[1:], last, strict=True):
        first, *rest = wrapped(text, room)
        lines += [f"{line:{begin}}{first}".rstrip(), *(f"{'':{begin}}{part}" for part in rest)]
    return lines


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Return the text in lines of at most `width - indent` characters, at least one line; `width` 0 = one line."""
    return (textwrap.wrap(text, max(width - indent, 1)) if width else [text]) or [""]


def shortened(text: str, width: int) -> str:
    """Return the text, cut to `width` characters with a mark at its end; 0 = not cut."""
    return text if not width or len(text) <= width else text[: max(width - 1, 0)] + "~"


def size(number: int | None) -> str:
    """Return bytes as `12 MiB`; None as `-`."""
    if number is None:
        return "-"
    return byte_size(number)


def screen(lines: Sequence[str], height: int) -> str:
    """Return the lines for a terminal of so many rows, cleared before: the first ones that fit, and how many are
    missing.
    """
    room = max(height - 1, 2)  # the cursor is in the last row
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
    """Colours words for a terminal; without one every word stays as it is."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def good(self, text: str) -> str:
        """Green."""
        return self._in("32", text)

    def bad(self, text: str) -> str:
        """Red, bold."""
        return self._in("1;31", text)

    def dim(self, text: str) -> str:
        """Grey."""
        return self._in("2", text)

    def service(self, number: int, text: str) -> str:
        """Return one of seven colours."""
        return self._in(str(31 + number % 6) if number < 6 else "1;36", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on and text else text


def terminal_width() -> int:
    """Return columns of standard output; 0 = it is no terminal, lines have any width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def terminal_height() -> int:
    """Return number of lines of the terminal that standard output is; 0 = it is none."""
    return shutil.get_terminal_size().lines if sys.stdout.isatty() else 0


def paint() -> Paint:
    """Colours for standard output, where it is a terminal and neither NO_COLOR nor TERM=dumb is set."""
    return Paint(sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")
