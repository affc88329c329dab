"""`bulkhead status` prints the state of the agent, once or repeatedly, or waits until the node is ready."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn

from msgspec import to_builtins

from services.cli.agent.local_agent import Agent, local_agent
from services.cli.terminal.output import dump
from services.cli.terminal.table import (
    Paint,
    duration,
    paint,
    screen,
    shorten_text,
    size,
    table,
    terminal_height,
    terminal_width,
    wrap_text,
)
from services.report.node import ProcessRow, Report
from services.report.pod_rows import PodRow, one_line
from shared.errors import OperatorError
from shared.text.plain_text import plain

Write = Callable[[str], None]
READY, FAILED, NOT_READY = 0, 1, 3  # exit codes
_MAX_SHOWN_PODS = 20  # of pods in a terminal, so that the verdict above them stays visible
INTERVAL_SECONDS = 2.0  # between two reports of --watch
_LOOK_SECONDS = 1.0  # between two looks of --wait-ready when no beat arrives


def show_status(run_dir: str, form: str, watch: bool, wait_ready: float | None, out: Write, err: Write) -> int:
    """Print the state as text, wide, json or yaml. `wait_ready`: seconds to wait for a ready node; None = do not.

    Return the exit code: 0 = ready, 3 = not, 1 = the agent cannot be asked.
    """
    deadline = time.monotonic() + (wait_ready or 0.0)
    while True:
        try:
            with local_agent(run_dir) as agent:
                if watch:
                    _watch(agent, form, out)
                found = agent.report()
                while found.problems and (left := deadline - time.monotonic()) > 0:
                    agent.client.wait_for_beat(lambda beat: True, min(_LOOK_SECONDS, left))
                    found = agent.report()
        except OperatorError as error:
            if (left := deadline - time.monotonic()) > 0:  # an agent that cannot be asked may be about to start
                time.sleep(min(_LOOK_SECONDS, left))
                continue
            err(str(error))
            return FAILED
        for line in status_lines(found, form, terminal_width(), paint()):
            out(line)
        return NOT_READY if found.problems else READY


def status_lines(found: Report, form: str, width: int, colour: Paint, earlier: Report | None = None) -> list[str]:
    """Return the lines of the report in one form. `width`: columns of the terminal, 0 = any. The share of a CPU is that
    since the `earlier` report, otherwise that since the start of the process."""
    if form in ("json", "yaml"):
        return [dump(as_data(found), form)]
    lines = _head(found, width, colour)
    lines += ["", *_processes(found, width, colour, earlier)]
    troubles = [one_line(f"{row.service}: {line}") for row in found.processes for line in row.troubles]
    if troubles:
        lines += ["", colour.bad("troubles"), *(f"  {part}" for line in troubles for part in wrap_text(line, width, 2))]
    lines += ["", *_streams(found, form == "wide", width)]
    return [*lines, "", *_pods(found, form == "wide", width)]


def as_data(found: Report) -> dict[str, Any]:
    """Return the report as JSON data; its `ready` summarizes it."""
    return {"ready": not found.problems, **to_builtins(found)}


def pod_table(rows: Sequence[PodRow], width: int, now: float) -> list[str]:
    """Return a table of pods with what each waits for, which is never cut. `now`: wall-clock seconds."""
    header = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "WAITS FOR"]
    cells = [
        [
            row.namespace,
            row.name,
            f"{row.ready}/{row.containers}",
            row.state,
            str(row.restarts),
            duration(age_of(row, now)),
            row.waits_for,
        ]
        for row in rows
    ]
    if 0 < width < 80:  # in a narrow terminal namespace, restarts and age are left out
        header, cells = _without(header, cells, (0, 4, 5))
    return table(header, cells, width, wraps=True)


def age_of(row: PodRow, now: float) -> float | None:
    """Return the age of the pod in seconds since the agent accepted it, None = not known. `now`: wall-clock seconds."""
    try:
        return now - datetime.fromisoformat(row.started).timestamp()
    except ValueError:
        return None


def _without(header: list[str], rows: list[list[str]], left_out: tuple[int, ...]) -> tuple[list[str], list[list[str]]]:
    kept = [number for number in range(len(header)) if number not in left_out]
    return [header[number] for number in kept], [[row[number] for number in kept] for row in rows]


def _watch(agent: Agent, form: str, out: Write) -> NoReturn:
    earlier: Report | None = None
    while True:
        found = agent.report()
        lines = status_lines(found, form, terminal_width(), paint(), earlier)
        earlier = found
        height = terminal_height() if form in ("text", "wide") else 0
        out(screen(lines, height) if height else "\n".join(lines))
        time.sleep(INTERVAL_SECONDS)


def _head(found: Report, width: int, colour: Paint) -> list[str]:
    verdict = colour.bad("not ready") if found.problems else colour.good("ready")
    lines = [f"node {found.node}: {verdict}"]
    for line in found.problems:
        first, *rest = wrap_text(one_line(line), width, 2)
        lines += [colour.bad("! ") + first, *(f"  {part}" for part in rest)]
    if found.standalone:
        lines.append("API server: none, the node runs alone")
    else:
        lines.append(shorten_text(one_line(f"API server: {found.api_server.removeprefix('API server ')}"), width))
        lines.append(f"lease renewed: {duration(found.lease_age)} ago" if found.lease_age is not None else "lease: -")
    runtime = found.runtime
    state = "ready" if runtime.ready and runtime.network_ready else "not ready"
    state = state if runtime.reachable else "not reachable"
    named = f" ({runtime.name} {runtime.version})" if runtime.name else ""
    lines.append(shorten_text(one_line(f"runtime: {state if runtime.known else 'not known'}{named}"), width))
    return lines


def _processes(found: Report, width: int, colour: Paint, earlier: Report | None) -> list[str]:
    narrow = 0 < width < 60
    header = ["SERVICE", "STATE", "PID", "RESTARTS", "AGE", "BEAT", "CPU", "MEMORY"]
    before = {row.pid: row for row in earlier.processes} if earlier else {}
    rows = [_process_cells(row, before.get(row.pid)) for row in found.processes]
    if narrow:
        header, rows = _without(header, rows, (3, 4, 6))
    lines = table(header, rows, width)
    marked = [
        line if row.state == "running" else colour.bad(line)
        for line, row in zip(lines[1:], found.processes, strict=True)
    ]
    return [lines[0], *marked]


def _process_cells(row: ProcessRow, earlier: ProcessRow | None) -> list[str]:
    return [
        row.service,
        row.state,
        str(row.pid or "-"),
        str(row.restarts) if row.restarts < 15 else "15+",
        duration(row.age),
        duration(row.beat_age),
        _share(row, earlier),
        size(row.memory_bytes),
    ]


def _share(row: ProcessRow, earlier: ProcessRow | None) -> str:
    """Return the share of one CPU, in percent."""
    if row.cpu_seconds is None or row.age is None:
        return "-"
    used, passed = row.cpu_seconds, row.age
    if earlier is not None and earlier.cpu_seconds is not None and earlier.age is not None:
        used, passed = used - earlier.cpu_seconds, passed - earlier.age
    return f"{100 * used / passed:.1f}%" if passed > 0 else "-"


def _streams(found: Report, wide: bool, width: int) -> list[str]:
    stale = [row for row in found.streams if row.stale_in]
    if not wide:
        if not stale:
            return [f"streams: {len(found.streams)}, none stale"]
        return [f"streams: {len(stale)} stale"] + [
            shorten_text(f"  {row.name}: stale in {', '.join(row.stale_in)}", width) for row in stale
        ]
    rows = [
        [
            row.name,
            row.owner or "-",
            "-" if row.number is None else str(row.number),
            "-" if row.items is None else str(row.items),
            _stream_state(row.stale_in, row.incomplete_in, row.followers),
        ]
        for row in found.streams
    ]
    return table(["STREAM", "OWNER", "NUMBER", "ITEMS", "FOLLOWERS"], rows, width)


def _stream_state(stale: tuple[str, ...], incomplete: tuple[str, ...], followers: tuple[str, ...]) -> str:
    if not followers:
        return "none"
    parts = [f"stale in {', '.join(stale)}"] if stale else []
    if only := [service for service in incomplete if service not in stale]:
        parts.append(f"incomplete in {', '.join(only)}")
    return "; ".join(parts) or f"in step: {', '.join(followers)}"


def _pods(found: Report, wide: bool, width: int) -> list[str]:
    counts = ", ".join(f"{count} {state}" for state, count in found.pods_by_state.items())
    lines = [shorten_text(plain(f"pods: {len(found.pods)}" + (f" ({counts})" if counts else "")), width)]
    shown = found.pods if wide else tuple(row for row in found.pods if row.waits_for)
    if not shown:
        return lines
    most = len(shown) if wide or not width else _MAX_SHOWN_PODS
    more = f"{len(shown) - most} more pods wait (bulkhead pods lists them)" if len(shown) > most else ""
    return lines + pod_table(shown[:most], width, time.time()) + ([shorten_text(more, width)] if more else [])
