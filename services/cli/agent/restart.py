"""`bulkhead restart` ends services with SIGTERM, which supervisord starts again, and waits for their first beats.

The signal goes to the process, not through supervisord, so that no service stays stopped when this command is
killed."""

import os
import signal
import time
from collections.abc import Callable, Sequence

from bus.manifest import Holder
from bus.messages.beat import Beat
from services.cli.agent.local_agent import Agent, local_agent
from services.report.node import process_problem
from services.report.processes import process_of
from shared.errors import OperatorError
from shared.process.identity import is_running

Write = Callable[[str], None]
MAX_STOP_SECONDS = 10.0  # that a service has to end, as stopwaitsecs in supervisord.conf; then it is killed
MAX_START_SECONDS = 60.0  # until the first beat of the new process


def restart_services(run_dir: str, services: Sequence[str], out: Write, err: Write) -> int:
    """Restart the services one after the other. Return the exit code: 0, or 1 at the first that did not return."""
    try:
        with local_agent(run_dir) as agent:
            for service in services:
                out(_restart(agent, service))
    except OperatorError as error:
        err(str(error))
        return 1
    return 0


def _restart(agent: Agent, service: str) -> str:
    holder, stopped = (facts := process_of(agent.run_dir, service)).holder, facts.stopped
    if holder is None:
        what, remedy = process_problem(service, "absent", None)
        raise OperatorError(what, remedy=remedy)
    supervisord = "/".join(holder.supervisord.split("/")[:3])
    if not supervisord or not is_running(supervisord):
        raise OperatorError(
            "its supervisord has ended, nothing would start it again", where=service, remedy="start the agent"
        )

    def is_another(beat: Beat) -> bool:
        return beat.service == service and beat.pid != holder.pid

    began = time.monotonic()
    _end(holder, signal.SIGKILL if stopped else signal.SIGTERM)
    beat = agent.client.wait_for_beat(is_another, MAX_STOP_SECONDS)
    if beat is None:
        _end(holder, signal.SIGKILL)
        beat = agent.client.wait_for_beat(is_another, MAX_START_SECONDS)
    if beat is None:
        raise OperatorError(
            f"has sent no beat within {MAX_STOP_SECONDS + MAX_START_SECONDS:.0f} s",
            where=service,
            remedy=f"bulkhead logs --service {service}",
        )
    return f"{service}: process {holder.pid} ended, {beat.pid} runs after {time.monotonic() - began:.1f} s"


def _end(holder: Holder, number: signal.Signals) -> None:
    """Send the signal to exactly this process: its id may belong to another process by now."""
    try:
        descriptor = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    except OSError as error:
        raise OperatorError(f"cannot be signalled: {error.strerror}", where=f"process {holder.pid}") from error
    try:
        if is_running(holder.process):
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise OperatorError("may not be signalled", where=f"process {holder.pid}", remedy="run this as root") from error
    finally:
        os.close(descriptor)
