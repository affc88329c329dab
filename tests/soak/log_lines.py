"""Which lines of the services' logs a soak may contain. Pure: lines in, complaints out."""

import re
from collections.abc import Iterable

# What a severe line may say, and why it may.
EXPECTED: tuple[tuple[str, str], ...] = (
    (r"the container runtime .*(does not answer|is not reachable|not answer)", "containerd was killed"),
)
_SEVERE = re.compile(r"^[EF]\d{4} |^Traceback \(most recent call last\)|^\s*\t?Traceback \(most recent call last\)")
_WHISPERS = re.compile(r"never awaited|never retrieved|Unclosed |ResourceWarning|was destroyed but it is pending")
_EXPECTED = tuple(re.compile(pattern) for pattern, _ in EXPECTED)


def complaints_of(lines: Iterable[str]) -> list[str]:
    """The lines that nobody expected: severe ones, tracebacks, and asyncio's word on what was left lying about."""
    found: list[str] = []
    forgiven = False  # a traceback belongs to the line before it
    for line in lines:
        heading = bool(re.match(r"^[IWEF]\d{4} ", line))
        if heading:
            forgiven = any(pattern.search(line) for pattern in _EXPECTED)
        if not forgiven and (_SEVERE.search(line) or _WHISPERS.search(line)):
            found.append(line.strip())
    return found
