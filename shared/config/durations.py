"""Go's duration syntax, the only one configuration and flags know. Pure; knows nothing of which field it reads."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_LARGEST = 2**63 / 1e9  # Go keeps nanoseconds in an int64


def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as `1m30s`, `100ms` or `0` (reference config.md 1.3). Raises ValueError."""
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    position, total = 0, 0.0
    while match := _PART.match(rest, position):
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if position == 0 or position != len(rest):
        raise ValueError(f'"{text}" is not a duration')
    if total > _LARGEST:
        raise ValueError(f'"{text}" is longer than a duration can be')
    return sign * total
