"""Which lines of the services' logs a soak may contain. Pure: lines in, complaints out."""

import re
from collections.abc import Iterable

# Pattern of a severe line that is expected, and its reason.
EXPECTED: tuple[tuple[str, str], ...] = (
    (r"the container runtime .*(does not answer|is not reachable|not answer)", "containerd was killed"),
)
_SEVERE = re.compile(r"^[EF]\d{4} |^Traceback \(most recent call last\)|^\s*\t?Traceback \(most recent call last\)")
_WHISPERS = re.compile(r"never awaited|never retrieved|Unclosed |ResourceWarning|was destroyed but it is pending")
_EXPECTED = tuple(re.compile(pattern) for pattern, _ in EXPECTED)


def complaints_of(lines: Iterable[str]) -> list[str]:
    """The unexpected lines: severe ones, tracebacks, and asyncio's warnings about what was not awaited or closed."""
    found: list[str] = []
    expected = False  # a traceback belongs to the line before it
    for line in lines:
        heading = bool(re.match(r"^[IWEF]\d{4} ", line))
        if heading:
            expected = any(pattern.search(line) for pattern in _EXPECTED)
        if not expected and (_SEVERE.search(line) or _WHISPERS.search(line)):
            found.append(line.strip())
    return found
