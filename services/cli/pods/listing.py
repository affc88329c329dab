"""`bulkhead pods` and `bulkhead describe` show the pods of this node from the agent's streams, also without a
cluster."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from bus.messages.event import MAX_KEPT_EVENTS
from services.cli.agent.events import absence_note, event_lines, events_of_agent
from services.cli.agent.local_agent import Agent, local_agent
from services.cli.agent.status import age_of, pod_table
from services.cli.terminal.output import dump
from services.cli.terminal.table import duration, table, terminal_width
from services.report.pod_rows import PodFacts, PodRow, one_line
from shared.errors import OperatorError
from shared.text.plain_text import plain
from shared.time.timestamps import local_text

Write = Callable[[str], None]
_WITHOUT_PODSYNC = (
    "podsync does not answer: pods are shown as the runtime has them (bulkhead status shows the processes)"
)


def list_pods(run_dir: str, pod: str, namespace: str, form: str, out: Write, err: Write) -> int:
    """Print a row for each pod, or of those that `pod` names. Return the exit code."""
    try:
        with local_agent(run_dir) as agent:
            found = find_pods(agent, pod, namespace)
            silent = [service for service in agent.silent if service != "podsync"]
    except OperatorError as error:
        err(str(error))
        return 1
    rows, wide = [row for row, _ in found], form == "wide"
    if not all(facts.status_known for _, facts in found):
        err(_WITHOUT_PODSYNC)
    if silent:
        err(absence_note(silent, "facts about pods"))
    if form in ("json", "yaml"):
        out(dump([to_builtins(row) for row in rows], form))
    elif rows:
        for line in (wide_table if wide else pod_table)(rows, terminal_width(), time.time()):
            out(line)
    else:
        err("no pods on this node" + (f" in namespace {namespace}" if namespace else ""))
    return 0


def describe_pod(run_dir: str, pod: str, namespace: str, form: str, out: Write, err: Write) -> int:
    """Print everything the streams have of one pod; as json or yaml the Pod with its present status."""
    try:
        with local_agent(run_dir) as agent:
            row, facts = find_pod(agent, pod, namespace)
            if not facts.status_known:
                err(_WITHOUT_PODSYNC)
            if form != "text":
                known = dict(facts.desired.get("pod") or {"metadata": {"name": row.name, "namespace": row.namespace}})
                if facts.status:
                    known["status"] = facts.status.get("status")
                out(dump(known, form))
                return 0
            events, silent = events_of_agent(agent)
            if silent:
                err(absence_note(silent))
            events = [one for one in events if one.get("uid") == row.uid or _named(one, row)]
    except OperatorError as error:
        err(str(error))
        return 1
    for line in _description(row, facts, events):
        out(plain(line))  # some values, such as an image, may contain any characters
    return 0


def wide_table(rows: Sequence[PodRow], width: int, now: float) -> list[str]:
    """Return a table of pods with age, address, source and UID; `now`: wall-clock seconds."""
    header = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "SOURCE", "UID", "WAITS FOR"]
    cells = [
        [
            row.namespace,
            row.name,
            f"{row.ready}/{row.containers}",
            row.state,
            str(row.restarts),
            duration(age_of(row, now)),
            row.ip or "-",
            row.source,
            row.uid,
            row.waits_for,
        ]
        for row in rows
    ]
    return table(header, cells, width, wraps=True)


def find_pods(agent: Agent, pod: str, namespace: str) -> list[tuple[PodRow, PodFacts]]:
    """Return the pods that match `pod` (name, namespace/name, UID, name in a manifest; "" = any) and `namespace`.

    Raises OperatorError where `pod` is given and there is none.
    """
    rows, facts = agent.pods()
    space, _, name = pod.rpartition("/")
    space = space or namespace
    here = [(row, one) for row, one in zip(rows, facts, strict=True) if not space or row.namespace == space]
    if not pod:
        return here
    exact = [item for item in here if name in (item[0].name, item[0].uid)]
    found = exact or [
        item
        for item in here
        if item[0].source in ("file", "http") and item[0].name == f"{name}-{agent.config.node_name}"
    ]
    if not found:
        where = f" in namespace {space}" if space else ""
        raise OperatorError(
            f"no pod {name!r}{where} on this node",
            remedy="bulkhead pods lists them, bulkhead explain knows earlier ones",
        )
    return found


def find_pod(agent: Agent, pod: str, namespace: str) -> tuple[PodRow, PodFacts]:
    """Return the one pod that matches. Raises OperatorError for none or several."""
    found = find_pods(agent, pod, namespace)
    if len(found) > 1:
        names = ", ".join(f"{row.namespace}/{row.name} ({row.uid})" for row, _ in found[:5])
        raise OperatorError(f"{pod!r} means {len(found)} pods: {names}", remedy="name the namespace or the UID")
    return found[0]


def _named(event: dict[str, Any], row: PodRow) -> bool:
    return not event.get("uid") and (event.get("namespace"), event.get("name")) == (row.namespace, row.name)


def _description(row: PodRow, facts: PodFacts, events: list[dict[str, Any]]) -> Iterator[str]:
    status = facts.status.get("status") or {}
    spec = (facts.desired.get("pod") or {}).get("spec") or {}
    width = max(terminal_width() - len("  "), 0)  # the width of indented text; 0 = any
    yield f"{row.namespace}/{row.name}"
    for name, value in (
        ("UID", row.uid),
        ("Source", row.source),
        ("State", row.state),
        ("Waits for", row.waits_for or "nothing"),
        ("Started", local_text(row.started)),
        ("IP", row.ip),
        ("Priority", str(spec.get("priority", 0))),
        ("QoS class", str(status.get("qosClass") or "")),
        ("Message", one_line(status.get("message") or "")),
    ):
        if value:
            yield f"  {name + ':':11} {value}"
    yield from _containers(spec, status, facts)
    yield from _volumes(facts)
    conditions = status.get("conditions") or []
    if conditions:
        yield "Conditions"
        keys = ("type", "status", "reason", "message")
        rows = [[one_line(one.get(key) or "") for key in keys] for one in conditions]
        yield from (f"  {line}" for line in table(["TYPE", "STATUS", "REASON", "MESSAGE"], rows, width))
    older = f"bulkhead explain {row.namespace}/{row.name} shows older ones"
    yield "Events" if events else f"Events: none among the newest {MAX_KEPT_EVENTS} of each service ({older})"
    yield from (f"  {line}" for line in event_lines(events, width, of_one=True))


def _containers(spec: dict[str, Any], status: dict[str, Any], facts: PodFacts) -> Iterator[str]:
    runtime = {str(one.get("id")): one for one in facts.runtime.get("containers") or []}
    for title, kind in (("Init containers", "initContainers"), ("Containers", "containers"),
                        ("Ephemeral containers", "ephemeralContainers")):  # fmt: skip
        statuses = {one.get("name"): one for one in status.get(kind[:-1] + "Statuses") or []}
        if spec.get(kind):
            yield title
        for container in spec.get(kind) or []:
            found = statuses.get(container.get("name")) or {}
            identifier = str(found.get("containerID") or "").rpartition("//")[2]
            if not facts.status_known:
                states = [one.get("state") for one in runtime.values() if one.get("name") == container.get("name")]
                yield f"  {container.get('name')}: {', '.join(map(str, states)) or 'not in the runtime'}"
                yield f"    image     {container.get('image')}"
                continue
            yield f"  {container.get('name')}: {_container_state(found)}"
            yield f"    image     {container.get('image')}"
            yield f"    ready     {'yes' if found.get('ready') else 'no'}, {found.get('restartCount', 0)} restarts"
            if identifier:
                process = (runtime.get(identifier) or {}).get("pid")
                yield f"    container {identifier[:13]}" + (f", process {process}" if process else "")
            if last := (found.get("lastState") or {}).get("terminated"):
                yield f"    before    {_ended(last)}"


def _container_state(status: dict[str, Any]) -> str:
    state = status.get("state") or {}
    if running := state.get("running"):
        return f"running since {local_text(str(running.get('startedAt')))}"
    if ended := state.get("terminated"):
        return _ended(ended)
    waiting = state.get("waiting") or {}
    reason, message = waiting.get("reason") or "not known", waiting.get("message") or ""
    return one_line(f"waiting: {reason}" + (f" ({message})" if message else ""))


def _ended(ended: dict[str, Any]) -> str:
    reason = ended.get("reason") or "ended"
    return one_line(f"{reason} with exit code {ended.get('exitCode')} at {local_text(str(ended.get('finishedAt')))}")


def _volumes(facts: PodFacts) -> Iterator[str]:
    volumes = facts.volumes.get("volumes") or {}
    if volumes:
        yield "Volumes"
    for name, volume in sorted(volumes.items()):
        error = f": {one_line(volume['error'])}" if volume.get("error") else ""
        yield f"  {name}: {volume.get('state')}{error}"
