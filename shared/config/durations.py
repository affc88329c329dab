"""Go's durations, the only ones configuration and flags know. Pure; knows nothing of which field it reads."""

import re

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_MAX_NANOSECONDS = 2**63 - 1  # Go keeps nanoseconds in an int64
_MAX_CHARACTERS = 200  # every real duration is shorter


def parse_nanoseconds(text: str) -> int:
    """Return nanoseconds of a Go duration such as `1m30s`, `100ms` or `0` (config.md 1.3). Raises ValueError."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    if len(text) > _MAX_CHARACTERS:
        raise ValueError("is too long for a duration")
    position, total = 0, 0
    while match := _PART.match(rest, position):
        integer, fraction, unit = match[1], match[2] or "", _UNITS[match[3]]
        if not integer and not fraction:
            break
        total += int(integer or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        position = match.end()
    if position == 0 or position != len(rest):
        raise ValueError(f'"{text}" is not a duration')
    if total > _MAX_NANOSECONDS:
        raise ValueError(f'"{text}" is longer than a duration can be')
    return sign * total


def parse_duration(text: str) -> float:
    """Return seconds of a Go duration. Raises ValueError."""
    return parse_nanoseconds(text) / 1e9


def format_duration(nanoseconds: int) -> str:
    """Return a duration as Go prints it: `1m0s`, `4h0m0s`, `100ms`, `0s`."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if rest < size * 1000:
            return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, rest = divmod(rest, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, _UNITS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(amount: int, size: int) -> str:
    """amount / size, exactly; size is a power of ten."""
    integer, rest = divmod(amount, size)
    return f"{integer}.{str(rest).zfill(len(str(size)) - 1)}".rstrip("0").rstrip(".") if rest else str(integer)
