"""`bulkhead events`: the newest events of the agent, from the streams of its services, also without a cluster."""

from collections.abc import Callable, Sequence
from typing import Any

from bus.messages.event import KEPT
from bus.messages.services import SERVICES
from services.cli.agent.local_agent import Agent, local_agent
from services.cli.terminal.output import dump
from services.cli.terminal.table import table, terminal_width
from services.report.pod_rows import one_line
from shared.errors import OperatorError

Write = Callable[[str], None]


def list_events(run_dir: str, pod: str, namespace: str, form: str, out: Write, err: Write) -> int:
    """Print the events, the oldest first. Return the exit code."""
    space, _, name = pod.rpartition("/")
    space = space or namespace
    try:
        with local_agent(run_dir) as agent:
            events, silent = events_of_agent(agent)
            if len(silent) == len(SERVICES):
                remedy = "bulkhead status shows the processes"
                raise OperatorError("no process answers", where=agent.run_dir, remedy=remedy)
            here = [event for event in events if not space or event.get("namespace") == space]
            found = [event for event in here if not name or name in (event.get("name"), event.get("uid"))]
            # of a static pod the name in its manifest
            found = found or [event for event in here if event.get("name") == f"{name}-{agent.config.node_name}"]
    except OperatorError as error:
        err(str(error))
        return 1
    if silent:
        err(note_about(silent))
    if form != "text":
        out(dump(found, form))
        return 0
    if not found:
        err(f"no events{f' of {pod}' if pod else ''} among the newest {KEPT} of each service")
    for line in event_lines(found, terminal_width()):
        out(line)
    return 0


def events_of_agent(agent: Agent) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The events of all services that answer, the oldest first, each with the service as `from`; and the services that
    do not answer."""
    found = agent.streams(*(f"events/{service}" for service in SERVICES))
    events = [
        event | {"from": name.partition("/")[2]} for name, items in found.items() for event in (items or {}).values()
    ]
    return sorted(events, key=lambda event: str(event.get("time") or "")), agent.silent


def note_about(silent: Sequence[str], what: str = "events") -> str:
    """A note that `what` these services have is missing."""
    verb = "does" if len(silent) == 1 else "do"
    return f"{', '.join(silent)} {verb} not answer: {what} are missing (bulkhead status shows the processes)"


def event_lines(events: Sequence[dict[str, Any]], width: int, *, of_one: bool = False) -> list[str]:
    """A table of events; `of_one`: all are of one object, which is not named."""
    if not events:
        return []
    header = ["TIME", "TYPE", "REASON", *([] if of_one else ["OBJECT"]), "MESSAGE"]
    rows = [
        [
            _time(event),
            str(event.get("type") or ""),
            one_line(event.get("reason") or ""),
            *([] if of_one else [_object(event)]),
            one_line(event.get("message") or ""),
        ]
        for event in events
    ]
    return table(header, rows, width, wraps=True)


def _time(event: dict[str, Any]) -> str:
    """UTC to the second."""
    time = str(event.get("time") or "")
    return f"{time[:19]}Z" if time.endswith("Z") else time


def _object(event: dict[str, Any]) -> str:
    name = str(event.get("name") or "")
    space = f"{event['namespace']}/" if event.get("namespace") else ""
    return f"{str(event.get('kind') or '').lower()} {space}{name}"
