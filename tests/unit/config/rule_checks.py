"""The effective document of a test, and what the rules find in it."""

import copy
from typing import Any

from shared.config.field_table import FIELDS
from shared.config.findings import Findings
from shared.config.gate_table import GATES
from shared.config.nested import put_value, remove_value
from shared.config.rules import check_rules

DEFAULT_GATES = {name: gate.default for name, gate in GATES.items()}
Case = tuple[dict[str, Any], dict[str, bool], str, dict[str, Any], dict[str, bool]]


def effective(changes: dict[str, Any]) -> dict[str, Any]:
    """The defaults with some keys changed; None removes a key."""
    data: dict[str, Any] = {}
    for field in FIELDS:
        if field.default is not None:
            put_value(data, field.key, copy.deepcopy(field.default))
    for key, value in changes.items():
        if value is None:
            remove_value(data, key)
        else:
            put_value(data, key, value)
    return data


def found(changes: dict[str, Any], **gates: bool) -> list[str]:
    """The lines of what refuses the configuration."""
    findings = Findings()
    check_rules(effective(changes), {**DEFAULT_GATES, **gates}, findings)
    return findings.lines


def warned(changes: dict[str, Any], **gates: bool) -> list[str]:
    """The lines of what is only reported; nothing refuses the configuration."""
    findings = Findings()
    check_rules(effective(changes), {**DEFAULT_GATES, **gates}, findings)
    assert not findings.lines
    return [finding.line for finding in findings.found]


def holds(case: Case) -> None:
    """A case is what is wrong, its gates and how its one line begins; then its good neighbour and that one's gates."""
    bad, gates, start, good, good_gates = case
    [line] = found(bad, **gates)
    assert line.startswith(start)
    assert line.endswith(")"), "a line ends with its remedy"
    assert found(good, **good_gates) == []


def named(case: Case) -> str:
    """The name of a case in pytest's output."""
    return f"{next(iter(case[0]))}-{case[2]}"[:70]
