"""Builds CRI messages as plain dicts, in which fields with their zero value are absent."""

from typing import Any

from shared.cri.interface import Message


def message(**fields: Any) -> Message:
    """Return the fields that have a value: None, "", 0, False and empty lists and maps are left out. An inner message
    that has a meaning even when it is empty (`{"seccomp": {}}` is not the same as no seccomp) is an
    `ExplicitMessage`."""
    return {name: _plain(value) for name, value in fields.items() if isinstance(value, ExplicitMessage) or value}


class ExplicitMessage(dict[str, Any]):
    """A message that is sent even when it is empty."""


def int64(value: int | None) -> ExplicitMessage | None:
    """Return a CRI Int64Value, such as a user ID; None = not set, which is not the same as 0."""
    return None if value is None else ExplicitMessage(message(value=value))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, ExplicitMessage) else value
