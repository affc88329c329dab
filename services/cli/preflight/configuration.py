"""Finds the kubelet's command line, in its systemd unit or as given, and evaluates the configuration."""

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from services.cli.config.found_configuration import found_arguments
from services.cli.config.systemd_unit import PROPERTIES, environment_files, unit_arguments
from services.cli.preflight.findings import Finding, Section, Severity
from shared.config.evaluation import evaluate
from shared.config.field_table import FIELDS
from shared.config.findings import ERROR, NOTE, ConfigurationRefusedError
from shared.config.findings import Finding as ConfigurationFinding
from shared.config.gate_table import GATES, Declared, Stage
from shared.config.nested import value_of
from shared.config.readers import GATE_READERS
from shared.config.resolve import Resolved
from shared.errors import OperatorError

_SHOWN = (*PROPERTIES, "FragmentPath", "DropInPaths", "ActiveState", "SubState", "NeedDaemonReload")
_SYSTEMCTL = 10.0  # seconds
_LONGEST_FILE = 1 << 20  # bytes of an environment file that are read
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "busybox"))
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_DEFAULTS = {field.key: field.default for field in FIELDS}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The flags that were found and what came out of them; `resolved` None = the configuration cannot be used."""

    resolved: Resolved | None
    findings: tuple[Finding, ...]


def read_configuration(unit: str, flags: tuple[str, ...], timeout: float = _SYSTEMCTL) -> Configuration:
    """Evaluate these flags, else those of the unit, else those that `bulkhead config check` finds. `timeout`: seconds
    that systemctl has."""
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
    """The flags, and where they are from. Raises OperatorError."""
    if flags:
        return list(flags), [_finding(Severity.OK, "the flags of this command line are checked")]
    arguments, findings = _of_unit(unit, timeout)
    if arguments is None:
        found = found_arguments()
        return found.arguments, [*findings, _finding(Severity.NOTE, f"checked instead: {found.origin}")]
    return arguments, findings


def _of_unit(unit: str, timeout: float) -> tuple[list[str] | None, list[Finding]]:
    """The flags of the unit; None = there is no such unit, or its command cannot be used. Raises OperatorError, also
    where systemctl does not answer: the defaults would not be those of this node."""
    command = ["systemctl", "show", unit, *(f"--property={each}" for each in _SHOWN)]
    try:
        answer = subprocess.run(command, capture_output=True, check=False, timeout=timeout, text=True, errors="replace")
    except OSError as error:
        return None, [_finding(Severity.WARNING, f"systemctl cannot be run: {error.strerror}", unit)]
    except subprocess.TimeoutExpired as error:
        what, remedy = f"systemctl show does not answer within {timeout:.0f} s", "try again, or give flags"
        raise OperatorError(what, where=unit, remedy=remedy) from error
    if answer.returncode:
        line = " ".join(answer.stderr.split())[:200]
        return None, [_finding(Severity.WARNING, f"systemctl fails: {line}", unit)]
    texts = {path: text for path in environment_files(answer.stdout) if (text := _text(path)) is not None}
    try:
        arguments = unit_arguments(answer.stdout, texts)
    except ValueError as error:
        remedy = "close the quote in the unit, its drop-ins or environment files"
        raise OperatorError(f"its command line cannot be split: {error}", where=unit, remedy=remedy) from error
    return arguments, unit_findings(unit, answer.stdout, arguments)


def unit_findings(unit: str, shown: str, arguments: list[str] | None) -> list[Finding]:
    """What is remarkable in the output of `systemctl show` of the unit. Pure."""
    values = dict(line.partition("=")[::2] for line in shown.splitlines())
    if arguments is None:
        state = values.get("LoadState", "")
        what = "there is no such unit" if state == "not-found" else f"has no command that can be used (it is {state})"
        return [_finding(Severity.WARNING, what, unit, "name the unit with --unit, or give the flags")]
    files = " and ".join(part for part in (values.get("FragmentPath", ""), values.get("DropInPaths", "")) if part)
    state = f"{values.get('ActiveState', '?')} ({values.get('SubState', '?')})"
    active = values.get("ActiveState") == "active"
    found = [_finding(Severity.OK, f"its flags are checked: {files or 'no file'}", unit)]
    remedy = "" if active else "see journalctl, and repair it first: give-back needs a kubelet that runs"
    found.append(_finding(Severity.OK if active else Severity.WARNING, f"is {state}", unit, remedy))
    if values.get("NeedDaemonReload") == "yes":
        what = "its files have changed, and systemd has not read them"
        found.append(_finding(Severity.WARNING, what, unit, "systemctl daemon-reload"))
    commands = [line.partition("argv[]=")[2] for line in shown.splitlines() if line.startswith("ExecStart=")]
    if len(commands) > 1:
        found.append(_finding(Severity.WARNING, "has more than one ExecStart; the last one is checked", unit))
    program = Path((values.get("ExecStart", "").partition("path=")[2].split(" ;")[0]).strip()).name
    if program in _SHELLS:
        what = "its command is a shell: the flags of the kubelet in it are not known"
        found.append(_finding(Severity.PROBLEM, what, unit, "start the kubelet without a shell"))
    given = {word.partition("=")[0] for word in _words(values.get("Environment", ""))}
    absent = [name for name in dict.fromkeys(_VARIABLE.findall(commands[-1] if commands else "")) if name not in given]
    if absent and not environment_files(shown):
        found.append(_finding(Severity.NOTE, f"nothing sets {', '.join(absent)}", unit))
    return found


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _text(path: str) -> str | None:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return None


def _converted(found: ConfigurationFinding) -> Finding:
    severity = {ERROR: Severity.PROBLEM, NOTE: Severity.NOTE}.get(found.severity, Severity.WARNING)
    named = "" if found.place.startswith("--") else found.key
    what = f"{named}: {found.message}" if named else found.message
    return _finding(severity, what, found.place, found.remedy)


def _without_effect(resolved: Resolved) -> list[Finding]:
    """Keys with another value than the default are warnings; a flag without effect is a note."""
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
    """The gates that were switched on and that no process of this agent reads."""
    values = resolved.config.feature_gates
    declared = {name for name, gate in GATES.items() if gate.declared is Declared.BUILT}
    known = GATE_READERS.keys() | declared
    on = [name for name, gate in GATES.items() if values.get(name) and not gate.default and gate.stage is not Stage.ALL]
    if unread := [name for name in on if name not in known]:
        what = f"no process of this agent reads these feature gates: {', '.join(unread)}"
        return [_finding(Severity.NOTE, what, "featureGates")]
    return []


def _finding(severity: Severity, what: str, where: str = "", remedy: str = "") -> Finding:
    return Finding(section=Section.CONFIGURATION, severity=severity, what=what, where=where, remedy=remedy)
