"""The quick copy of JSON data in which nothing needs a closer look; the caller that gets `UnusualError` takes it.

Knows no paths and no messages; pure.
"""

from typing import Any

_INT64 = range(-(2**63), 2**63)


class UnusualError(Exception):
    """Text beyond ASCII, a number with a fraction, a NUL, no JSON at all, too deep: perhaps wrong, perhaps not."""


def usual_copy(value: Any, depth: int) -> Any:
    """Return a deep copy without null fields, at a tenth of what checks with paths cost. `depth`: how deep it may
    nest."""
    kind = type(value)
    if kind is str:
        if value.isascii() and "\0" not in value:
            return value
    elif kind is dict:
        if depth > 0:
            copy = {}
            for key, item in value.items():
                if type(key) is not str or not key.isascii() or "\0" in key:
                    raise UnusualError
                if item is not None:
                    copy[key] = usual_copy(item, depth - 1)
            return copy
    elif kind is list:
        if depth > 0:
            return [usual_copy(item, depth - 1) for item in value]
    elif value is None or kind is bool or (kind is int and value in _INT64):
        return value
    raise UnusualError
