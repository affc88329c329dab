"""Decides which records show: `-v` for all, `--vmodule` for files by name (config.md 1.3, 5.13). Pure.

Error, warning and info always show, as V(0). `verbose(n)` is the level of V(n) for `log.log`; `log.debug` is V(4), and
what the libraries log below a warning is V(8).
"""

import logging
import re
from typing import Final

DEBUG_VERBOSITY: Final = 4
LIBRARY_VERBOSITY: Final = 8
CHATTY: Final = frozenset({"asyncio", "aiohttp", "grpc", "asyncinotify", "kubernetes", "urllib3"})
_MAX_LEVEL = 9


def verbose(verbosity: int) -> int:
    """Return the logging level of klog's V(verbosity); above 9 counts as 9."""
    return logging.INFO - min(max(verbosity, 0), _MAX_LEVEL)


class Verbosity:
    """The two flags; `by_file`: a pattern of a file's name without `.py` and the verbosity there, first match wins."""

    def __init__(self, general: int = 0, by_file: tuple[tuple[str, int], ...] = ()) -> None:
        self._general = general
        self._by_file = [(_pattern(pattern), verbosity) for pattern, verbosity in by_file]
        self._files: dict[str, int] = {}
        self._most = max([general, *(verbosity for _, verbosity in by_file)])

    @property
    def root_level(self) -> int:
        """The level below which nothing can show, wherever it comes from. It is the same for V(0) to V(3), which few
        records are between: changing the level of a fork costs it 0.7 MiB of copied pages, one for each logger."""
        return logging.DEBUG if self._most >= DEBUG_VERBOSITY else verbose(DEBUG_VERBOSITY - 1)

    @property
    def libraries(self) -> bool:
        """Whether the libraries may log more than warnings."""
        return self._most >= LIBRARY_VERBOSITY

    def level_of(self, record: logging.LogRecord) -> int | None:
        """Return the record's V level (errors and warnings: 0), None when it is not to show."""
        level = record.levelno
        if level >= logging.WARNING:
            return 0
        if self.libraries and record.name.partition(".")[0] in CHATTY:
            needed = LIBRARY_VERBOSITY
        elif level >= logging.INFO:
            return 0
        else:
            needed = logging.INFO - level if level > logging.DEBUG else DEBUG_VERBOSITY
        if needed <= self._general or (self._by_file and needed <= self._in_file(record.module)):
            return needed
        return None

    def _in_file(self, name: str) -> int:
        found = self._files.get(name)
        if found is None:
            found = next((verbosity for pattern, verbosity in self._by_file if pattern.fullmatch(name)), 0)
            self._files[name] = found
        return found


def _pattern(glob: str) -> re.Pattern[str]:
    """Go's file patterns: `*`, `?`, `[a-z]`, `[^a-z]`, `\\x`; one that is not well formed matches nothing."""
    parts, at = [], 0
    while at < len(glob):
        part = re.compile(r"\*|\?|\[\^?(?:\\.|[^\]\\])+\]|\\.|[^\[\\]", re.DOTALL).match(glob, at)
        if part is None:
            return re.compile(r"(?!)")
        parts.append(_translated(part[0]))
        at = part.end()
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error:  # as [z-a]
        return re.compile(r"(?!)")


def _translated(part: str) -> str:
    if part in ("*", "?"):
        return ".*" if part == "*" else "."
    if part[0] == "[":
        inside = re.sub(r"\\(.)|([\[&~|^])", lambda m: re.escape(m[1] or m[2]), part[1:-1].removeprefix("^"))
        return f"[^{inside}]" if part[1] == "^" else f"[{inside}]"
    return re.escape(part[-1])
