"""`bulkhead config check`: every problem of a configuration, with the text that stands there.

Reads the files once more for what it quotes; never quotes a line that may hold the value of a URL header.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.bootstrap.adapters.kubeconfig import resolve_in_child
from shared.config.document import read_documents
from shared.config.drop_ins import read_text
from shared.config.evaluation import evaluate
from shared.config.findings import DANGER, ERROR, NOTE, STRICT, ConfigurationRefusedError, Finding, Findings
from shared.config.resolve import Resolved

Say = Callable[[str], None]
_PLACE = re.compile(r"(.+):(\d+):(\d+)")
_HEADERS = "header"  # staticPodURLHeader, however it is misspelt
_WIDEST = 100  # characters of a line that are shown


def check_configuration(arguments: Callable[[], list[str]], form: str, out: Say, err: Say) -> int:
    """Say what is wrong, in lines or as JSON; the exit code."""
    resolved: Resolved | None = None
    try:
        resolved = evaluate(arguments())
        found = [*resolved.found, *_unused(resolved), *_kubeconfig_problems(resolved)]
    except ConfigurationRefusedError as error:
        found = list(error.findings)
    found = sorted(map(_strictly, found), key=lambda finding: position(finding.place))
    bad = any(finding.severity == ERROR for finding in found)
    quotes = Quotes()
    if form == "json":
        out(json.dumps([_as_json(finding, quotes) for finding in found], indent=2))
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
        out(f"{resolved.config.config_file or 'the flags'}: good")
    return int(bad)


def _unused(resolved: Resolved) -> Iterable[Finding]:
    """One note for each thing given that nothing acts on."""
    for key in resolved.without_effect:
        what = "accepted, but without effect yet"
        if key.startswith("--"):
            yield Finding(NOTE, "", what, "", key)
        else:
            yield Finding(NOTE, key, what, "", resolved.layers.origins[key].place)


def _kubeconfig_problems(resolved: Resolved) -> Iterable[Finding]:
    """What is wrong with the kubeconfig and the files it names; plugins are not run.

    A kubeconfig that is still to be made with the help of the bootstrap kubeconfig is not missing: that one counts.
    """
    kubeconfig, bootstrap = resolved.config.kubeconfig, resolved.config.bootstrap_kubeconfig
    if not kubeconfig:
        return
    if bootstrap and not Path(kubeconfig).exists():
        kubeconfig = bootstrap
    for line in resolve_in_child(kubeconfig, patience=0).problems:
        yield Finding(ERROR, "", line)


def _strictly(finding: Finding) -> Finding:
    """What the kubelet only logs is an error at a prompt."""
    if finding.severity not in (STRICT, DANGER):
        return finding
    message = f"{finding.message}; the kubelet would start all the same, and at most log it"
    return replace(finding, severity=ERROR, message=message)


def _as_json(finding: Finding, quotes: "Quotes") -> dict[str, Any]:
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
    """File, line and column of a place; 0 where it has none."""
    match = _PLACE.fullmatch(place)
    return (match[1], int(match[2]), int(match[3])) if match else (place, 0, 0)


class Quotes:
    """The lines of configuration files that may be shown."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def line(self, file: str, number: int) -> str:
        """The line (from 1) as it stands there; "" where there is none, or where it may hold a secret."""
        if number and file not in self._files:
            text = read_text(file, Findings(), file) or ""
            self._files[file] = _without_secrets(text, file)
        lines = self._files.get(file, [])
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def shown(self, place: str) -> list[str]:
        """The line of this place and a caret under the column."""
        file, number, column = position(place)
        line = "".join(c if c.isprintable() else " " for c in self.line(file, number))
        if not line.strip():
            return []
        start = max(0, min(column - 1 - _WIDEST // 2, len(line) - _WIDEST))
        part = line[start : start + _WIDEST]
        return [part.rstrip(), " " * (column - 1 - start) + "^"]


def _without_secrets(text: str, file: str) -> list[str]:
    """The lines as an editor counts them; empty are those of URL headers, which may carry credentials."""
    lines = re.split(r"\r\n|[\n\r\x85\u2028\u2029]", text)
    if _HEADERS not in text.lower():
        return lines
    findings = Findings()
    documents = read_documents(text, file, findings)
    hidden = [span for document in documents for span in document.secret_lines]
    if findings.found:  # what could not be read to its end
        first = next(number for number, line in enumerate(lines, start=1) if _HEADERS in line.lower())
        hidden.append((first, len(lines)))
    return [
        "" if any(first <= number <= last for first, last in hidden) else line
        for number, line in enumerate(lines, start=1)
    ]
