"""Dotted keys in nested data. Pure; knows no field."""

from typing import Any


def value_of(data: dict[str, Any], key: str) -> Any:
    """Return the value at a dotted key, None where absent."""
    current: Any = data
    for part in key.split("."):
        current = current.get(part) if isinstance(current, dict) else None
    return current


def put_value(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key; map and list values replace as a whole."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = data.get(parent)
        data[parent] = inner = inner if isinstance(inner, dict) else {}
        data = inner
    data[last] = value


def remove_value(data: dict[str, Any], key: str) -> None:
    """Forget a dotted key, if it is there."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = data.get(parent)
        if not isinstance(inner, dict):
            return
        data = inner
    data.pop(last, None)
