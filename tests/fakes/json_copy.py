"""A deep copy of JSON, several times faster than `copy.deepcopy`: plain dicts and lists are copied, all else shared."""

from typing import TypeVar

T = TypeVar("T")


def json_copy(value: T) -> T:
    """A copy that shares no dict or list."""
    if isinstance(value, dict):
        return {key: json_copy(inside) for key, inside in value.items()}  # type: ignore[return-value]
    if isinstance(value, list | tuple):
        return [json_copy(inside) for inside in value]  # type: ignore[return-value]
    return value
