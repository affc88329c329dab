"""`bulkhead config check` prints every problem of a configuration with the line of the file.

It reads the files again to quote lines, and never quotes a line that may hold the value of a URL header."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from services.bootstrap.adapters.kubeconfig import resolve_in_child
from services.bootstrap.adapters.serving_pair import ensure_pair_in_child, pair_request
from services.cli.terminal.output import dump
from services.podsync.adapters.placement_conflicts import find_placement_conflicts
from shared.config.document import read_documents
from shared.config.drop_ins import read_text
from shared.config.evaluation import evaluate
from shared.config.findings import DANGER, ERROR, NOTE, STRICT, WARNING, ConfigurationRefusedError, Finding, Findings
from shared.config.resolve import Resolved
from shared.model.frozen_copy import replace

Write = Callable[[str], None]
_PLACE = re.compile(r"(.+):(\d+):(\d+)")
_HEADERS = "header"  # a part of staticPodURLHeader that also matches misspelt keys
_MAX_LINE_CHARACTERS = 100  # of a line that are shown
_USUAL_ROOT = "/var/lib/kubelet"


def check_configuration(arguments: Callable[[], list[str]], form: str, out: Write, err: Write) -> int:
    """Print the problems as lines, JSON or YAML. Return the exit code: 1 if there is an error, else 0."""
    resolved: Resolved | None = None
    try:
        resolved = evaluate(arguments())
        found = [
            *resolved.found,
            *_find_unused(resolved),
            *_kubeconfig_problems(resolved),
            *_certificate_problems(resolved),
            *_placement_problems(resolved),
        ]
        found += _root_directory_warnings(resolved)
    except ConfigurationRefusedError as error:
        found = list(error.findings)
    found = sorted(map(_as_error, found), key=lambda finding: position(finding.place))
    bad = any(finding.severity == ERROR for finding in found)
    quotes = QuotableLines()
    if form != "text":
        out(dump([finding_data(finding, quotes) for finding in found], form))
        return int(bad)
    for finding in found:
        if finding.severity != ERROR:
            if finding.severity != NOTE:
                out(f"note: {finding.line}")
            continue
        err(finding.line)
        for line in quotes.shown(finding.place):
            err(f"    {line}")
    if resolved is not None and resolved.without_effect:
        out(f"note: accepted, but without effect yet: {', '.join(resolved.without_effect)}")
    if not bad and resolved is not None:
        out(f"{resolved.config.config_file or 'the flags'}: good{_checked_besides(resolved)}")
    return int(bad)


def _checked_besides(resolved: Resolved) -> str:
    """Return in brackets what was checked besides the configuration file; "" = nothing."""
    config = resolved.config
    flags = len(config.given_flags.keys() - {"config"})
    checked = [f"{flags} flag{'s' * (flags > 1)}"] if flags and config.config_file else []
    places = filter(_PLACE.fullmatch, resolved.layers.places.values())
    files = {str(Path(position(place)[0]).absolute()) for place in places}
    checked += sorted(files - {config.config_file})
    checked += [path for path in (config.kubeconfig, config.bootstrap_kubeconfig) if path and Path(path).exists()]
    return f" (with {', '.join(checked)})" if checked else ""


def _find_unused(resolved: Resolved) -> Iterable[Finding]:
    """Return a note for each key or flag that was given and has no effect."""
    for key in resolved.without_effect:
        what = "accepted, but without effect yet"
        if key.startswith("--"):
            yield Finding(NOTE, "", what, "", key)
        else:
            yield Finding(NOTE, key, what, "", resolved.layers.origins[key].place)


def _kubeconfig_problems(resolved: Resolved) -> Iterable[Finding]:
    """Return the problems of the kubeconfig and the files it names; plugins are not run.

    Where the kubeconfig does not exist yet and there is a bootstrap kubeconfig, that one is checked.
    """
    kubeconfig, bootstrap = resolved.config.kubeconfig, resolved.config.bootstrap_kubeconfig
    if not kubeconfig:
        return
    if bootstrap and not Path(kubeconfig).exists():
        kubeconfig = bootstrap
    for line in resolve_in_child(kubeconfig, timeout=0).problems:
        yield Finding(ERROR, "", line)


def _certificate_problems(resolved: Resolved) -> Iterable[Finding]:
    """Return what a start would refuse of the client CA and the serving pair."""
    for line in ensure_pair_in_child(pair_request(resolved.config, checks_only=True)).problems:
        key, _, what = line.partition(": ")
        origin = resolved.layers.origins.get(key)
        yield Finding(ERROR, key, what, place=origin.place if origin else "")


def _placement_problems(resolved: Resolved) -> Iterable[Finding]:
    """Return what a start would refuse of the policies for CPUs, memory and devices, on this machine and beside the
    files of an agent before."""
    root_dir = resolved.config.root_dir
    unreadable = Path(root_dir).is_dir() and not os.access(root_dir, os.R_OK | os.X_OK)
    if unreadable:
        what = f"{root_dir}: what an agent before has kept of CPUs and memory cannot be compared: Permission denied"
        yield Finding(WARNING, "", what, "run this command as root")
    for conflict in find_placement_conflicts(resolved.config):
        if unreadable and conflict.where.startswith(f"{root_dir}/"):
            continue
        origin = resolved.layers.origins.get(conflict.where)
        if origin is not None:
            yield Finding(ERROR, conflict.where, conflict.what, conflict.remedy, origin.place)
        else:
            where = f"{conflict.where}: " if conflict.where else ""
            yield Finding(ERROR, "", f"{where}{conflict.what}", conflict.remedy)


def _root_directory_warnings(resolved: Resolved) -> Iterable[Finding]:
    """Return a warning where a node of a cluster was given a root directory that pods with hostPath volumes do not
    expect: they name that of the kubelet."""
    config = resolved.config
    given = "root-dir" in config.given_flags and Path(config.root_dir).resolve() != Path(_USUAL_ROOT).resolve()
    if config.joins_cluster and given:
        what = f"CSI drivers, device plugins and DaemonSets that mount {_USUAL_ROOT} do not find this directory"
        yield Finding(WARNING, "", what, "leave it out, unless this node has no such pods", "--root-dir")


def _as_error(finding: Finding) -> Finding:
    """Return a finding as an error although the kubelet only logs it."""
    if finding.severity not in (STRICT, DANGER):
        return finding
    message = f"{finding.message}; the kubelet would start all the same, and at most log it"
    return replace(finding, severity=ERROR, message=message)


def finding_data(finding: Finding, quotes: "QuotableLines") -> dict[str, Any]:
    """Return the finding as JSON data."""
    file, line, column = position(finding.place)
    return {
        "severity": finding.severity,
        "file": "" if finding.place.startswith("--") else file,
        "line": line,
        "column": column,
        "key": finding.key,
        "message": finding.message,
        "remedy": finding.remedy,
        "text": finding.place if finding.place.startswith("--") else quotes.line(file, line),
    }


def position(place: str) -> tuple[str, int, int]:
    """Return file, line and column of a place; line and column are 0 where the place has none."""
    match = _PLACE.fullmatch(place)
    return (match[1], int(match[2]), int(match[3])) if match else (place, 0, 0)


class QuotableLines:
    """Has the lines of configuration files that may be shown."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def line(self, file: str, number: int) -> str:
        """Return the line with this number (from 1); "" where there is none, or where it may hold a secret."""
        if number and file not in self._files:
            text = read_text(file, Findings(), file) or ""
            self._files[file] = _without_secrets(text, file)
        lines = self._files.get(file, [])
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def shown(self, place: str) -> list[str]:
        """Return the line of this place with a caret below the column; nothing where there is no line."""
        file, number, column = position(place)
        line = "".join(c if c.isprintable() else " " for c in self.line(file, number))
        if not line.strip():
            return []
        start = max(0, min(column - 1 - _MAX_LINE_CHARACTERS // 2, len(line) - _MAX_LINE_CHARACTERS))
        part = line[start : start + _MAX_LINE_CHARACTERS]
        return [part.rstrip(), " " * (column - 1 - start) + "^"]


def _without_secrets(text: str, file: str) -> list[str]:
    """Return the lines as an editor counts them. Those of URL headers are empty, because they may hold credentials."""
    lines = re.split(r"\r\n|[\n\r\x85\u2028\u2029]", text)
    if _HEADERS not in text.lower():
        return lines
    findings = Findings()
    documents = read_documents(text, file, findings)
    hidden = [span for document in documents for span in document.secret_lines]
    if findings.found:  # the file was not read to its end
        first = next(number for number, line in enumerate(lines, start=1) if _HEADERS in line.lower())
        hidden.append((first, len(lines)))
    return [
        "" if any(first <= number <= last for first, last in hidden) else line
        for number, line in enumerate(lines, start=1)
    ]
