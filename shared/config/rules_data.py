"""Lets the rules look into the effective document, and how they name a value inside a list or a map. Pure."""

from typing import Any

from shared.config.durations import parse_nanoseconds
from shared.config.findings import ERROR, Findings
from shared.config.nested import value_of

SECOND = 10**9  # nanoseconds
_TRUTHS = ("1", "t", "T", "TRUE", "true", "True")
_FALSEHOODS = ("0", "f", "F", "FALSE", "false", "False")


def nanoseconds(data: dict[str, Any], key: str) -> int | None:
    """Return the duration at a dotted key; None where absent. A bare number is nanoseconds already."""
    value = value_of(data, key)
    return parse_nanoseconds(value) if isinstance(value, str) else value


def pairs(data: dict[str, Any], key: str) -> list[tuple[str, str]]:
    """Return the entries of a map of strings; null counts as the empty string, as in Go."""
    return [(name, "" if value is None else value) for name, value in (value_of(data, key) or {}).items()]


def truth(text: str) -> bool | None:
    """Return what Go takes the text for as a bool; None when it is none."""
    return text in _TRUTHS if text in _TRUTHS + _FALSEHOODS else None


def note(findings: Findings, key: str, inner: str, what: str, remedy: str = "", severity: str = ERROR) -> None:
    """Note a problem of `inner` ("[2]", ".name" or both) inside the value at `key`; a flag's line names the part."""
    dotted = f"{key}{inner}"
    while dotted not in findings.places and len(dotted) > len(key):
        dotted = dotted[: max(dotted.rfind("."), dotted.rfind("["))]
    place = findings.places.get(dotted) or findings.place_of(key)
    if place.startswith("--"):
        findings.add(key, f"{inner.removeprefix('.')}: {what}", remedy, place, severity)
    else:
        findings.add(f"{key}{inner}", what, remedy, place, severity)
