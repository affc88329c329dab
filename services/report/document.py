"""Forms the state of the node as the node page shows it: JSON data. Pure."""

from collections.abc import Mapping
from typing import Any

from services.report.node import LATE_SECONDS, ProcessRow, Report
from services.report.pod_rows import PodRow, one_line

Document = dict[str, Any]
MAX_TROUBLES = 100  # lines


def document(
    report: Report,
    *,
    version: str,
    cpu: Mapping[str, float | None],
    pods: Mapping[str, PodRow],
    history: Mapping[str, Any],
    sections: Mapping[str, Any],
) -> Document:
    """Return the complete state. `version`: of the page's files, so that an outdated page loads itself again. `cpu`:
    percent of one CPU by service, between the last two samples. `sections`: the sections about the machine, which are
    returned unchanged."""
    troubles = [one_line(f"{row.service}: {line}") for row in report.processes for line in row.troubles]
    return {
        "version": version,
        "node": {
            "name": report.node,
            "ready": not report.problems,
            "problems": [one_line(line) for line in report.problems],
            "facts": _facts(report),
        },
        "processes": [_process(row, cpu.get(row.service)) for row in report.processes],
        "troubles": troubles[:MAX_TROUBLES],
        "pods": dict(pods),
        "history": history,
        **sections,
    }


def _process(row: ProcessRow, cpu: float | None) -> dict[str, Any]:
    return {
        "service": row.service,
        "state": f"late ({row.beat_age:.0f} s)" if row.state == "late" and row.beat_age is not None else row.state,
        "pid": row.pid,
        "restarts": row.restarts,
        "age": None if row.age is None else round(row.age),
        "cpu": cpu,
        "memory": row.memory_bytes,
    }


def _facts(report: Report) -> list[str]:
    """Return short lines about the node."""
    runtime = report.runtime
    named = f"{runtime.name} {runtime.version}".strip() or "container runtime"
    state = "ready" if runtime.ready and runtime.network_ready else "not ready"
    state = state if runtime.reachable else "not reachable"
    facts = [f"{named}: {state if runtime.known else 'not known'}"]
    if report.standalone:
        facts.append("alone, without an API server")
    else:
        facts.append(f"API server: {report.api_server.removeprefix('API server ')}")
        late = report.lease_age is None or report.lease_age > LATE_SECONDS * 10
        facts.append("lease: not renewed" if late else "lease: renewed")
    return [one_line(fact) for fact in facts]
