"""Calls the supervisord that started bootstrap: starts a program, shuts down, and writes on its console."""

import errno
import logging
import os
import queue
import stat
import syslog
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xmlrpc.client import ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from services.frame.generation import supervisor_process

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10.0  # of one call; a stopped supervisord must not block us longer
_ALREADY_STARTED = 60  # supervisor.xmlrpc.Faults.ALREADY_STARTED


class SupervisordError(Exception):
    """A call of supervisord failed; the text is one line."""


class Supervisord:
    """The RPC interface at `url` (`SUPERVISOR_SERVER_URL`)."""

    def __init__(self, url: str) -> None:
        self._url = url

    @classmethod
    def of_environment(cls) -> "Supervisord | None":
        """Return the supervisord that started this process, None when none did."""
        url = os.environ.get("SUPERVISOR_SERVER_URL", "")
        return cls(url) if url and os.environ.get("SUPERVISOR_ENABLED") == "1" else None

    def start_program(self, name: str) -> None:
        """Start a program that is not started by itself; running already is fine. Raises SupervisordError."""
        self._call(lambda server: server.supervisor.startProcess(name, False))

    def restart(self) -> None:
        """Let supervisord read its configuration again and restart all programs. Raises SupervisordError."""
        self._call(lambda server: server.supervisor.restart())

    def shut_down(self) -> None:
        """End supervisord and everything it runs. Raises SupervisordError."""
        self._call(lambda server: server.supervisor.shutdown())

    def _call(self, request: Callable[[Any], Any]) -> None:
        outcome: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

        def call() -> None:
            try:
                request(self._connect())
                outcome.put(None)
            except Exception as error:
                outcome.put(error)

        threading.Thread(target=call, name="supervisord call", daemon=True).start()
        try:
            error = outcome.get(timeout=_TIMEOUT_SECONDS)
        except queue.Empty:
            raise SupervisordError(
                f"supervisord at {self._url} did not answer within {_TIMEOUT_SECONDS:.0f} s"
            ) from None
        if error is not None and getattr(error, "faultCode", None) != _ALREADY_STARTED:
            raise SupervisordError(f"supervisord at {self._url}: {error}") from error

    def _connect(self) -> Any:
        transport = SupervisorTransport(None, None, serverurl=self._url)
        return ServerProxy("http://127.0.0.1", transport=transport)


def print_for_operator(lines: tuple[str, ...]) -> None:
    """Show the lines where supervisord's own output goes, never through its pipes.

    A daemon's console is /dev/null and a systemd unit's is a socket that cannot be opened; there it is syslog, which
    the journal files under the unit.
    """
    try:
        fd = os.open(f"/proc/{supervisor_process()}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EACCES, errno.ENOENT):
            log.warning("supervisord's console cannot be opened: %s", error.strerror)
        _send_to_syslog(lines)
        return
    try:
        if os.fstat(fd).st_rdev == Path("/dev/null").stat().st_rdev and stat.S_ISCHR(os.fstat(fd).st_mode):
            _send_to_syslog(lines)
        else:
            os.write(fd, "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))
    except OSError:
        _send_to_syslog(lines)
    finally:
        os.close(fd)


def _send_to_syslog(lines: tuple[str, ...]) -> None:
    syslog.openlog("bulkhead-bootstrap", syslog.LOG_PID, syslog.LOG_DAEMON)
    for line in lines:
        syslog.syslog(syslog.LOG_ERR, line)
    syslog.closelog()
