"""Reads fields of raw Kubernetes objects, whose values may have any type; pure. No value makes a reader raise."""

from typing import Any

from shared.model.objects import Object


def dictionary(value: Any) -> Object:
    """Return the value, or an empty dictionary in place of anything else."""
    return value if isinstance(value, dict) else {}


def dictionaries(value: Any) -> list[Object]:
    """Return the dictionaries of a list; an empty list in place of anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return the string, "" in place of anything else."""
    return value if isinstance(value, str) else ""


def number(value: Any) -> int | None:
    """Return the integer, None in place of anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
