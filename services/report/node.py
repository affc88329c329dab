"""Forms the state of the agent for an operator, from its processes, their beats and their streams. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from bus.messages.beat import Beat
from bus.messages.followed import Followed
from bus.messages.services import SERVICES
from services.report.pod_rows import PodRow
from services.report.processes import ProcessFacts

LATE_SECONDS = 3.0  # since a beat: three beats are missing
_API_SERVER = "API server"  # the trouble with which sources reports an outage begins with this
# sources owns these streams on every node and fills them from the API server; on a node that runs alone they stay
# empty.
_OF_A_CLUSTER = frozenset(("node.object", "pods.api_status", "pods.mirrors"))


class ProcessRow(Struct, frozen=True, kw_only=True):
    """One service. `state`: running, late (no beat for 3 s), stopped (by a signal), silent, absent. Times are seconds,
    memory is bytes."""

    service: str
    state: str
    pid: int | None
    restarts: int
    age: float | None
    beat_age: float | None
    cpu_seconds: float | None
    memory_bytes: int | None
    troubles: tuple[str, ...]


class StreamRow(Struct, frozen=True, kw_only=True):
    """One stream. `owner`: the service that publishes it, "" = it does not answer; `number`: that of the newest update;
    the other fields are about its followers."""

    name: str
    owner: str
    number: int | None
    items: int | None
    followers: tuple[str, ...]
    stale_in: tuple[str, ...]
    incomplete_in: tuple[str, ...]


class RuntimeRow(Struct, frozen=True, kw_only=True):
    """The container runtime as pleg observes it; `known` = pleg answered."""

    known: bool
    name: str = ""
    version: str = ""
    reachable: bool = False
    ready: bool = False
    network_ready: bool = False
    message: str = ""


class Report(Struct, frozen=True, kw_only=True):
    """Everything that `bulkhead status` shows. `problems`: the reasons why the node is not ready, one line each; empty
    = it is ready."""

    node: str
    standalone: bool
    run_dir: str
    api_server: str  # reachable | unknown | the error; "" = standalone
    node_ready: bool | None  # the Node's condition Ready; None = standalone, or the Node is not known
    lease_age: float | None  # seconds since the renewal; None = none was seen
    runtime: RuntimeRow
    processes: tuple[ProcessRow, ...]
    streams: tuple[StreamRow, ...]
    pods: tuple[PodRow, ...]
    pods_by_state: dict[str, int]
    problems: tuple[str, ...]


class ReportInputs(Struct, frozen=True, kw_only=True):
    """The data that was read for one report. Times are CLOCK_MONOTONIC seconds."""

    now: float
    node: str
    joins_cluster: bool
    run_dir: str
    processes: Mapping[str, ProcessFacts]
    beats: Mapping[str, Beat]
    followed: Mapping[str, Followed]
    observed: Mapping[str, Any] | None  # the item of node.observed; None = no answer
    node_object: Mapping[str, Any] | None
    shutdown: Mapping[str, Any] | None = None  # the item of node.shutdown; None = there is none, or no answer
    pods: Sequence[PodRow]


def report(given: ReportInputs) -> Report:
    """Return the report of this moment."""
    processes = tuple(_process(service, given) for service in SERVICES)
    owners = {name: service for service, beat in given.beats.items() for name in beat.streams}
    # Without a cluster some streams have no publisher; a copy of such a stream that never received anything is left
    # out.
    copies = ((name, copy) for one in given.followed.values() for name, copy in one.streams.items())
    names = {*owners, *(name for name, copy in copies if copy.incarnation)}
    streams = tuple(_stream(name, owners.get(name, ""), given) for name in sorted(names))
    runtime = _runtime(given.observed)
    api_server, node_ready = _api_server(given), _node_ready(given)
    lease = given.beats["status"].progress.get("lease") if "status" in given.beats else None
    failed = [process_problem(row.service, row.state, row.pid) for row in processes]
    problems = [f"{what} ({remedy})" for what, remedy in failed if what]
    problems += _shutdown_problems(given.shutdown or {})
    problems += _stream_problems(streams, {row.service for row in processes if row.state != "running"})
    problems += _runtime_problems(runtime)
    if api_server not in ("", "reachable", "unknown"):
        problems.append(api_server)
    if node_ready is False:
        problems.append("the Node is not Ready (kubectl describe node shows its conditions)")
    elif node_ready is None and given.joins_cluster:
        problems.append("the Node is not known yet")
    return Report(
        node=given.node,
        standalone=not given.joins_cluster,
        run_dir=given.run_dir,
        api_server=api_server,
        node_ready=node_ready,
        lease_age=None if lease is None else max(given.now - lease, 0.0),
        runtime=runtime,
        processes=processes,
        streams=streams,
        pods=tuple(given.pods),
        pods_by_state=dict(sorted(Counter(row.state for row in given.pods).items())),
        problems=tuple(problems),
    )


def _process(service: str, given: ReportInputs) -> ProcessRow:
    facts, beat = given.processes[service], given.beats.get(service)
    seen = [followed.beats[service] for followed in given.followed.values() if service in followed.beats]
    if beat is not None:
        seen.append(beat.sent_at)
    beat_age = max(given.now - max(seen), 0.0) if seen else None
    if facts.holder is None:
        state = "absent"
    elif facts.stopped:
        state = "stopped"
    elif beat_age is not None and beat_age > LATE_SECONDS:
        state = "late"
    else:
        state = "running" if service in given.followed or beat is not None else "silent"
    return ProcessRow(
        service=service,
        state=state,
        pid=facts.holder.pid if facts.holder else None,
        restarts=facts.restarts,
        age=facts.age,
        beat_age=beat_age,
        cpu_seconds=facts.cpu,
        memory_bytes=facts.memory,
        troubles=beat.troubles if beat is not None else (),
    )


def process_problem(service: str, state: str, pid: int | None) -> tuple[str, str]:
    """Return what is wrong with the process of `service`, and the remedy; both are "" for one that runs. `state` is
    that of `ProcessRow`, `pid` is not None but where it is absent. Every command describes a process with these
    words."""
    match state:
        case "absent":
            return f"{service} does not run", f"bulkhead logs --service {service}"
        case "stopped":
            return f"{service} is stopped by a signal", f"kill -CONT {pid}, or bulkhead restart {service}"
        case "late" | "silent":
            return f"{service} does not answer", f"process {pid}; bulkhead restart {service}"
    return "", ""


def _stream(name: str, owner: str, given: ReportInputs) -> StreamRow:
    copies = {service: one.streams[name] for service, one in given.followed.items() if name in one.streams}
    beat = given.beats.get(owner)
    awaited = given.joins_cluster or name not in _OF_A_CLUSTER
    return StreamRow(
        name=name,
        owner=owner,
        number=beat.streams.get(name) if beat else None,
        items=max((copy.items for copy in copies.values()), default=None),
        followers=tuple(sorted(copies)),
        stale_in=tuple(sorted(service for service, copy in copies.items() if copy.stale)),
        incomplete_in=tuple(sorted(service for service, copy in copies.items() if awaited and not copy.complete)),
    )


def _stream_problems(streams: Sequence[StreamRow], away: set[str]) -> list[str]:
    """Return a line for each stream with a problem. Streams of an owner that does not run are left out, because the
    report already says why they are stale."""
    return [
        f"stream {row.name} is stale in {', '.join(row.stale_in)}"
        for row in streams
        if row.stale_in and row.owner and row.owner not in away
    ]


def _runtime(observed: Mapping[str, Any] | None) -> RuntimeRow:
    if observed is None:
        return RuntimeRow(known=False)
    messages = (observed.get("runtime_message") or "", observed.get("network_message") or "")
    ready = bool(observed.get("runtime_ready")), bool(observed.get("network_ready"))
    return RuntimeRow(
        known=True,
        name=str(observed.get("runtime_name") or ""),
        version=str(observed.get("runtime_version") or ""),
        reachable=bool(observed.get("runtime_reachable")),
        ready=ready[0],
        network_ready=ready[1],
        message="; ".join(line for line, is_ready in zip(messages, ready, strict=True) if line and not is_ready),
    )


def _runtime_problems(runtime: RuntimeRow) -> list[str]:
    if not runtime.known:
        return ["the state of the container runtime is not known"]
    if not runtime.reachable:
        return ["the container runtime is not reachable"]
    if not (runtime.ready and runtime.network_ready):
        return [f"the container runtime is not ready: {runtime.message}"]
    return []


def _shutdown_problems(shutdown: Mapping[str, Any]) -> list[str]:
    """Return what a shutdown of the machine waits for, in the order in which pods stop."""
    if not shutdown.get("in_progress"):
        return []
    left = [f"{one['pods']} from {one['priority']} on" for one in shutdown["groups"] if one["pods"]]
    if not left or shutdown["over"]:
        return ["the machine shuts down: its pods have had their time"]
    return [f"the machine shuts down, and waits for pods, by priority: {', '.join(left)}"]


def _api_server(given: ReportInputs) -> str:
    if not given.joins_cluster:
        return ""
    beat = given.beats.get("sources")
    if beat is None:
        return "unknown"
    return next((line for line in beat.troubles if line.startswith(_API_SERVER)), "reachable")


def _node_ready(given: ReportInputs) -> bool | None:
    node = (given.node_object or {}).get("node") or {}
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = next((one for one in conditions if one.get("type") == "Ready"), None)
    return None if ready is None else ready.get("status") == "True"
