"""`bulkhead logs POD` shows the log of a container as `kubectl logs` does, from the agent itself."""

from collections.abc import Callable
from urllib.parse import quote

from msgspec import Struct

from services.cli.agent.local_agent import local_agent
from services.cli.agent.local_server import Query, open_answer
from services.cli.pods.listing import find_pod
from services.cli.terminal.output import write_bytes
from services.report.pod_rows import PodFacts, container_names, default_container
from shared.errors import OperatorError

Write = Callable[[str], None]


class LogOptions(Struct, frozen=True, kw_only=True):
    """The part of the log to show. `tail`: lines; `since`: seconds, 0 = all."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: int = 0

    def query(self) -> Query:
        """Return the query of /containerLogs."""
        given = [(name, "true") for name in ("follow", "previous", "timestamps") if getattr(self, name)]
        if self.tail is not None:
            given.append(("tailLines", str(self.tail)))
        return [*given, ("sinceSeconds", str(self.since))] if self.since else given


def show_pod_logs(run_dir: str, pod: str, namespace: str, options: LogOptions, err: Write) -> int:
    """Write the log to standard output as bytes. Return the exit code."""
    try:
        with local_agent(run_dir) as agent:
            directory = agent.run_dir
            row, facts = find_pod(agent, pod, namespace)
            agent.require("server")
        container = choose_container(facts, options.container, err)
        path = "/".join(quote(part, safe="") for part in (row.namespace, row.name, container))
        with open_answer(directory, f"/containerLogs/{path}", options.query()) as blocks:
            for block in blocks:
                write_bytes(block)
    except OperatorError as error:
        err(str(error))
        return 1
    return 0


def choose_container(facts: PodFacts, wanted: str, err: Write) -> str:
    """Return the container to show. Where the pod has several and none is named, a note names the one that was chosen.

    Raises OperatorError for one that the pod does not have.
    """
    names = container_names(facts)
    if wanted:
        if names and wanted not in names:
            raise OperatorError(f"the pod has no container {wanted!r}", remedy=f"it has {', '.join(names)}")
        return wanted
    if not names:
        raise OperatorError("the containers of the pod are not known", remedy="name one with -c")
    chosen = default_container(facts) or names[0]
    if len(names) > 1:
        err(f"container {chosen} of {', '.join(names)} (choose another one with -c)")
    return chosen
