"""Finds the kubelet's command line, in its systemd unit or as given, and evaluates the configuration."""

from collections.abc import Mapping
from pathlib import PurePath

from msgspec import Struct

from services.cli.config.found_configuration import find_machine_arguments
from services.cli.preflight.findings import Finding, Section, Severity
from services.cli.systemd import control
from services.cli.systemd.command_line import unit_variables, use_places_of
from services.cli.systemd.expansion import expand_words, referenced_names
from services.cli.systemd.unit import ServiceUnit
from shared.config.evaluation import evaluate
from shared.config.field_table import FIELDS
from shared.config.findings import ERROR, NOTE, ConfigurationRefusedError
from shared.config.findings import Finding as ConfigurationFinding
from shared.config.gate_releases import gates_of
from shared.config.gate_table import BUILT_FEATURES, Stage
from shared.config.nested import value_of
from shared.config.readers import GATE_READERS
from shared.config.resolve import Resolved
from shared.errors import OperatorError

_TIMEOUT_SECONDS = 10.0  # that systemd has to answer
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "busybox"))
_DEFAULTS = {field.key: field.default for field in FIELDS}


class Configuration(Struct, frozen=True, kw_only=True):
    """The flags that were found, and the configuration that they give; `resolved`: None = it cannot be used."""

    resolved: Resolved | None
    findings: tuple[Finding, ...]


def read_configuration(unit: str, flags: tuple[str, ...], timeout: float = _TIMEOUT_SECONDS) -> Configuration:
    """Evaluate these flags, else those of the unit, else those that `bulkhead config check` finds. `timeout`: seconds
    that systemd has."""
    findings: list[Finding] = []
    try:
        arguments, findings = _arguments(unit, flags, timeout)
        resolved = evaluate(arguments)
    except OperatorError as error:
        findings.append(_finding(Severity.PROBLEM, error.what, error.where, error.remedy))
        return Configuration(resolved=None, findings=tuple(findings))
    except ConfigurationRefusedError as error:
        findings += [_converted(found) for found in error.findings]
        return Configuration(resolved=None, findings=tuple(findings))
    findings += [_converted(found) for found in resolved.found]
    findings += [*_without_effect(resolved), *_gates(resolved)]
    return Configuration(resolved=resolved, findings=tuple(findings))


def _arguments(unit: str, flags: tuple[str, ...], timeout: float) -> tuple[list[str], list[Finding]]:
    """Return the flags, and a finding that says where they come from. Raises OperatorError."""
    if flags:
        return list(flags), [_finding(Severity.OK, "the flags of this command line are checked")]
    arguments, findings = _unit_flags(unit, timeout)
    if arguments is None:
        found = find_machine_arguments()
        return found.arguments, [*findings, _finding(Severity.NOTE, f"checked instead: {found.origin}")]
    return arguments, findings


def _unit_flags(name: str, timeout: float) -> tuple[list[str] | None, list[Finding]]:
    """Return the flags of the unit, and use its directories from then on; None = there is no unit, or it has no
    command. Raises OperatorError, also where systemd does not answer: the defaults would be wrong for this node."""
    if not control.is_booted():
        return None, [_finding(Severity.WARNING, "systemd does not run this machine", name)]
    unit = control.read_unit(name, timeout)
    if unit.load_state != "loaded" or not unit.commands:
        return None, unit_findings(unit, {})
    variables = unit_variables(unit)
    use_places_of(unit)
    return expand_words(unit.words, variables), unit_findings(unit, variables)


def unit_findings(unit: ServiceUnit, variables: Mapping[str, str]) -> list[Finding]:
    """Return what an operator should know about the unit. `variables`: the unit's variables. Pure."""
    name, state = unit.name, f"{unit.active_state} ({unit.sub_state})"
    if unit.load_state != "loaded" or not unit.commands:
        absent = unit.load_state == "not-found"
        what = "there is no such unit" if absent else f"has no command that can be used (it is {unit.load_state})"
        return [_finding(Severity.WARNING, what, name, "name the unit with --unit, or give the flags")]
    active = unit.active_state == "active"
    found = [_finding(Severity.OK, f"its flags are checked: {' and '.join(unit.files) or 'no file'}", name)]
    remedy = "" if active else "see journalctl, and repair it first: give-back needs a kubelet that runs"
    found.append(_finding(Severity.OK if active else Severity.WARNING, f"is {state}", name, remedy))
    if unit.reload_needed:
        what = "its files have changed, and systemd has not read them"
        found.append(_finding(Severity.WARNING, what, name, "systemctl daemon-reload"))
    if len(unit.commands) > 1:
        found.append(_finding(Severity.WARNING, "has more than one ExecStart; the last one is checked", name))
    if PurePath(unit.program).name in _SHELLS:
        what = "its command is a shell: the flags of the kubelet in it are not known"
        found.append(_finding(Severity.PROBLEM, what, name, "start the kubelet without a shell"))
    unset = [variable for variable in dict.fromkeys(referenced_names(unit.words)) if variable not in variables]
    if unset and not unit.environment_files:  # kubeadm's files need not set all variables
        found.append(_finding(Severity.NOTE, f"nothing sets {', '.join(unset)}", name))
    return found


def _converted(found: ConfigurationFinding) -> Finding:
    severity = {ERROR: Severity.PROBLEM, NOTE: Severity.NOTE}.get(found.severity, Severity.WARNING)
    named = "" if found.place.startswith("--") else found.key
    what = f"{named}: {found.message}" if named else found.message
    return _finding(severity, what, found.place, found.remedy)


def _without_effect(resolved: Resolved) -> list[Finding]:
    """Return a finding for each setting without effect: a warning for a key with another value than its default, a note
    for a flag."""
    findings = []
    for key in resolved.without_effect:
        what = "is accepted, but without effect yet"
        if key.startswith("--"):
            findings.append(_finding(Severity.NOTE, what, key))
        elif value_of(resolved.layers.data, key) != _DEFAULTS.get(key):
            remedy = "the pods run without it"
            findings.append(_finding(Severity.WARNING, f"{key}: {what}", resolved.layers.origins[key].place, remedy))
    return findings


def _gates(resolved: Resolved) -> list[Finding]:
    """Return the gates that were switched on and that no process of this agent reads."""
    values = resolved.config.feature_gates
    known = GATE_READERS.keys() | BUILT_FEATURES
    gates = gates_of(resolved.config.emulated_version)
    on = [name for name, gate in gates.items() if values.get(name) and not gate.default and gate.stage is not Stage.ALL]
    if unread := [name for name in on if name not in known]:
        what = f"no process of this agent reads these feature gates: {', '.join(unread)}"
        return [_finding(Severity.NOTE, what, "featureGates")]
    return []


def _finding(severity: Severity, what: str, where: str = "", remedy: str = "") -> Finding:
    return Finding(section=Section.CONFIGURATION, severity=severity, what=what, where=where, remedy=remedy)
