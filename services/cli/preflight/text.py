"""Forms the report of preflight as lines of text and as JSON data. Pure."""

from collections.abc import Iterator
from typing import Any

from msgspec import to_builtins

from services.cli.preflight.findings import Finding, PodVerdict, Report, Section, Severity, Verdict
from services.cli.terminal.table import Paint
from shared.text.plain_text import plain

_SEVERITIES = max(len(severity) for severity in Severity)
_ORDER = {
    verdict: number for number, verdict in enumerate((Verdict.CANNOT, Verdict.RESTARTS, Verdict.RUNS, Verdict.ENDED))
}
_STATIC = "a static pod: this agent gives it another UID"


def report_text(report: Report, paint: Paint) -> Iterator[str]:
    """Yield lines without control characters: sections of findings, the pods, and the conclusion."""
    if report.node:
        yield plain(f"preflight of node {report.node}")
    for section in Section:
        found = [finding for finding in report.findings if finding.section is section]
        if found:
            yield ""
            yield section.value
            yield from (f"  {_coloured(finding.severity, paint)} {plain(finding_line(finding))}" for finding in found)
    if report.pods:
        yield ""
        for pod in sorted(report.pods, key=lambda pod: (_ORDER[pod.verdict], pod.namespace, pod.name)):
            yield from (f"  {plain(line)}" for line in _pod_lines(pod))
    yield ""
    counted = f"{_number(report.problems, 'problem')}, {_number(report.warnings, 'warning')}"
    conclusion = "this agent can take over" if report.can_take_over else "this agent cannot take over yet"
    yield f"{conclusion}: {counted}"


def finding_line(finding: Finding) -> str:
    """Return the line of a finding: where, what, and the remedy in parentheses."""
    line = ": ".join(part for part in (finding.where, finding.what) if part)
    return line + (f" ({finding.remedy})" if finding.remedy else "")


def report_data(report: Report) -> dict[str, Any]:
    """Return the report as JSON data."""
    return {
        "node": report.node,
        "canTakeOver": report.can_take_over,
        "problems": report.problems,
        "warnings": report.warnings,
        "findings": [{key: str(value) for key, value in to_builtins(finding).items()} for finding in report.findings],
        "pods": [
            {
                **to_builtins(pod),
                "verdict": str(pod.verdict),
                "reasons": [_reason(reason) for reason in to_builtins(pod)["reasons"]],
            }
            for pod in report.pods
        ],
    }


def _reason(reason: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in reason.items()}


def _pod_lines(pod: PodVerdict) -> Iterator[str]:
    """Yield one line for the pod, and one for each further reason."""
    named = f"{pod.namespace}/{pod.name}"
    verdict = "keeps running" if pod.verdict is Verdict.RUNS and pod.running else pod.verdict.value
    first = f"{verdict:<14} {named}"
    if pod.verdict is Verdict.RESTARTS:
        yield f"{first}: {_STATIC}"
        first = " " * 14
    if not pod.reasons:
        if pod.verdict is not Verdict.RESTARTS:
            yield first
        return
    for number, reason in enumerate(pod.reasons):
        begin = f"{first}:" if number == 0 and first.strip() else " " * 15
        yield f"{begin} {reason.field}: {reason.consequence}"


def _coloured(severity: Severity, paint: Paint) -> str:
    text = f"{severity.value:<{_SEVERITIES}}"
    if severity is Severity.PROBLEM:
        return paint.bad(text)
    return paint.good(text) if severity is Severity.OK else paint.dim(text) if severity is Severity.NOTE else text


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
