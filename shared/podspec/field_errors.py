"""Kubernetes' words for what is wrong with a field: `<field path>: <kind>: <detail>`."""

import json
from collections.abc import Iterable
from typing import Any

from shared.podspec.schema import shown


def required(path: str, detail: str = "") -> str:
    """Nothing is there."""
    return f"{path}: Required value: {detail}" if detail else f"{path}: Required value"


def invalid(path: str, value: Any, detail: str) -> str:
    """It can't be this."""
    return f"{path}: Invalid value: {shown(value)}: {detail}"


def each_invalid(path: str, value: Any, details: Iterable[str]) -> list[str]:
    """Return one message per thing wrong."""
    return [invalid(path, value, detail) for detail in details]


def duplicate(path: str, value: Any) -> str:
    """It is there already."""
    return f"{path}: Duplicate value: {shown(value)}"


def unsupported(path: str, value: Any, supported: Iterable[str]) -> str:
    """It is none of these."""
    return (
        f"{path}: Unsupported value: {shown(value)}: supported values: {', '.join(map(json.dumps, sorted(supported)))}"
    )


def forbidden(path: str, detail: str) -> str:
    """It may not be given here."""
    return f"{path}: Forbidden: {detail}"


def not_found(path: str, value: Any) -> str:
    """It names nothing."""
    return f"{path}: Not found: {shown(value)}"


def in_range(path: str, value: int | None, low: int, high: int) -> list[str]:
    """Nothing, or that the number is outside."""
    if value is None or low <= value <= high:
        return []
    return [invalid(path, value, f"must be between {low} and {high}, inclusive")]


def not_negative(path: str, value: int | None) -> list[str]:
    """Nothing, or that the number is below zero."""
    return [] if value is None or value >= 0 else [invalid(path, value, "must be greater than or equal to 0")]


def one_of(path: str, value: str | None, supported: Iterable[str]) -> list[str]:
    """Nothing, or that the text is none of these."""
    return [] if value is None or value in supported else [unsupported(path, value, supported)]
