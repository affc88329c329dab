"""`bulkhead events` lists the newest events of the agent from the streams of its services, also without a cluster."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from msgspec import Struct

from bus.messages.beat import Beat
from bus.messages.event import MAX_KEPT_EVENTS
from bus.messages.services import SERVICES
from services.cli.agent.local_agent import Agent, local_agent
from services.cli.terminal.output import dump
from services.cli.terminal.table import table, terminal_width
from services.report.pod_rows import one_line
from shared.errors import OperatorError
from shared.text.plain_text import plain
from shared.time.timestamps import local_text, parse_rfc3339

Write = Callable[[str], None]
Event = dict[str, Any]
_MAX_IDENTITIES = 2 * MAX_KEPT_EVENTS * len(SERVICES)  # of events that were printed and have left the streams
_MAX_WAIT_SECONDS = 3600.0  # a beat ends the wait long before


class EventChoice(Struct, frozen=True, kw_only=True):
    """Which events are shown: of `pod` (name, namespace/name, UID, name in a manifest; "" = of every object), in
    `namespace` ("" = any), and not older than `since` (wall seconds; 0 = any). `node`: the node's name."""

    pod: str = ""
    namespace: str = ""
    since: float = 0.0
    node: str = ""

    def choose(self, events: Sequence[Event]) -> list[Event]:
        """Return those of `events` that are shown, in the same order."""
        space, _, name = self.pod.rpartition("/")
        space = space or self.namespace
        here = [event for event in events if not space or event.get("namespace") == space]
        found = [event for event in here if not name or name in (event.get("name"), event.get("uid"))]
        # for a static pod, the name in its manifest
        found = found or [event for event in here if event.get("name") == f"{name}-{self.node}"]
        return [event for event in found if not self.since or _moment(event) >= self.since]


def list_events(
    run_dir: str,
    pod: str,
    namespace: str,
    form: str,
    out: Write,
    err: Write,
    *,
    since: float = 0.0,
    watch: bool = False,
) -> int:
    """Print the events, the oldest first; those of the last `since` seconds, 0 = all. With `watch` print new ones as
    they are published, until Ctrl-C. Return the exit code."""
    try:
        with local_agent(run_dir) as agent:
            begin = time.time() - since if since else 0.0
            choice = EventChoice(pod=pod, namespace=namespace, since=begin, node=agent.config.node_name)
            events, silent = events_of_agent(agent)
            if len(silent) == len(SERVICES):
                remedy = "bulkhead status shows the processes"
                raise OperatorError("no process answers", where=agent.run_dir, remedy=remedy)
            if silent:
                err(absence_note(silent))
            if watch:
                _watch(agent, events, choice, form, out)
    except OperatorError as error:
        err(str(error))
        return 1
    found = choice.choose(events)
    if form != "text":
        out(dump(found, form))
        return 0
    if not found:
        err(f"no events{f' of {pod}' if pod else ''} among the newest {MAX_KEPT_EVENTS} of each service")
    for line in event_lines(found, terminal_width()):
        out(line)
    return 0


def _watch(agent: Agent, events: Sequence[Event], choice: EventChoice, form: str, out: Write) -> NoReturn:
    """Print the events, then those that follow. The stream of a service is read again when its beat shows another
    number."""
    seen: dict[str, tuple[str, int]] = {}  # by service: the incarnation and the number of its stream
    # The newest last; remembered because a stream that begins again shows them again.
    printed = dict.fromkeys(map(_identity, events))
    if form == "text":
        out(_watch_line(*_HEADER))
    for event in choice.choose(events):
        out(_watched(event, form))

    def has_more(beat: Beat) -> bool:
        return seen.get(beat.service) != _number(beat)

    while True:
        for beat in [beat for beat in agent.client.beats.values() if has_more(beat)]:
            items = agent.streams(f"events/{beat.service}")[f"events/{beat.service}"]
            if items is None:
                del agent.client.beats[beat.service]  # it has not answered, so ask again after its next beat
                continue
            seen[beat.service] = _number(beat)
            current = list(_of_service(beat.service, items))
            new = [event for event in current if _identity(event) not in printed]
            shown = dict.fromkeys(map(_identity, current))
            kept = [identity for identity in printed if identity not in shown]
            printed = dict.fromkeys(kept[-_MAX_IDENTITIES:]) | shown
            for event in choice.choose(sorted(new, key=_time)):
                out(_watched(event, form))
        agent.client.wait_for_beat(has_more, _MAX_WAIT_SECONDS)


def events_of_agent(agent: Agent) -> tuple[list[Event], tuple[str, ...]]:
    """Return the events of all services that answer, the oldest first, each with the service as `from`; and the
    services that do not answer.
    """
    found = agent.streams(*(f"events/{service}" for service in SERVICES))
    events = [event for name, items in found.items() for event in _of_service(name.partition("/")[2], items or {})]
    return sorted(events, key=_time), agent.silent


def absence_note(silent: Sequence[str], what: str = "events") -> str:
    """Return a note that `what` is missing from these services."""
    verb = "does" if len(silent) == 1 else "do"
    return f"{', '.join(silent)} {verb} not answer: {what} are missing (bulkhead status shows the processes)"


def event_lines(events: Sequence[Event], width: int, *, of_one: bool = False) -> list[str]:
    """Return a table of events; `of_one`: all events are about one object, which is therefore not named."""
    if not events:
        return []
    left_out = 3 if of_one else len(_HEADER)
    rows = [[cell for number, cell in enumerate(row) if number != left_out] for row in (_HEADER, *map(_cells, events))]
    return table(rows[0], rows[1:], width, wraps=True)


_HEADER = ("TIME", "TYPE", "REASON", "OBJECT", "MESSAGE")


def _cells(event: Event) -> tuple[str, str, str, str, str]:
    space = f"{event['namespace']}/" if event.get("namespace") else ""
    return (
        local_text(_time(event)),
        str(event.get("type") or ""),
        one_line(event.get("reason") or ""),
        f"{str(event.get('kind') or '').lower()} {space}{event.get('name') or ''}",
        one_line(event.get("message") or ""),
    )


def _watched(event: Event, form: str) -> str:
    match form:
        case "json":
            return json.dumps(event)
        case "yaml":
            return f"---\n{dump(event, form)}"
    return _watch_line(*_cells(event))


def _watch_line(moment: str, kind: str, reason: str, thing: str, message: str) -> str:
    """Return a line with columns as wide as most values need, because the later events are not known yet."""
    return plain(f"{moment:19}  {kind:7}  {reason:20}  {thing:30}  {message}")


def _of_service(service: str, items: dict[str, Event]) -> Iterator[Event]:
    return (event | {"from": service} for event in items.values())


def _number(beat: Beat) -> tuple[str, int]:
    return beat.incarnation, beat.streams.get(f"events/{beat.service}", 0)


def _identity(event: Event) -> tuple[str, ...]:
    """Return what distinguishes an event from the others of its service. The keys of a stream do not: they begin again
    at a restart."""
    return (str(event.get("from")), *(str(event.get(key)) for key in ("time", "uid", "name", "reason", "message")))


def _time(event: Event) -> str:
    return str(event.get("time") or "")


def _moment(event: Event) -> float:
    return parse_rfc3339(_time(event)) or 0.0
