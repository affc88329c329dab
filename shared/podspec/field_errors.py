"""Kubernetes' words for what is wrong with a field: `<field path>: <kind>: <detail>`."""

import json
from collections.abc import Iterable
from typing import Any

from shared.podspec.schema import shown


def required(path: str, detail: str = "") -> str:
    """Return the message for a field that is absent."""
    return f"{path}: Required value: {detail}" if detail else f"{path}: Required value"


def invalid(path: str, value: Any, detail: str) -> str:
    """Return the message for an invalid value."""
    return f"{path}: Invalid value: {shown(value)}: {detail}"


def each_invalid(path: str, value: Any, details: Iterable[str]) -> list[str]:
    """Return one message per thing wrong."""
    return [invalid(path, value, detail) for detail in details]


def duplicate(path: str, value: Any) -> str:
    """Return the message for a value that is given twice."""
    return f"{path}: Duplicate value: {shown(value)}"


def unsupported(path: str, value: Any, supported: Iterable[str]) -> str:
    """Return the message for a value that is none of the supported ones."""
    return (
        f"{path}: Unsupported value: {shown(value)}: supported values: {', '.join(map(json.dumps, sorted(supported)))}"
    )


def forbidden(path: str, detail: str) -> str:
    """Return the message for a field that is not permitted here."""
    return f"{path}: Forbidden: {detail}"


def not_found(path: str, value: Any) -> str:
    """Return the message for a name that is not found."""
    return f"{path}: Not found: {shown(value)}"


def in_range(path: str, value: int | None, low: int, high: int) -> list[str]:
    """Return a message if the number is outside of the range, else none."""
    if value is None or low <= value <= high:
        return []
    return [invalid(path, value, f"must be between {low} and {high}, inclusive")]


def not_negative(path: str, value: int | None) -> list[str]:
    """Return a message if the number is below zero, else none."""
    return [] if value is None or value >= 0 else [invalid(path, value, "must be greater than or equal to 0")]


def one_of(path: str, value: str | None, supported: Iterable[str]) -> list[str]:
    """Return a message if the text is none of these, else none."""
    return [] if value is None or value in supported else [unsupported(path, value, supported)]
