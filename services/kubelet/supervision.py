"""Runs the installed supervisord inside the executable, and changes the few things that a kubelet must do differently.

It stops all services at once, keeps the operator's standard error open in them, and ends with a kubelet's exit codes.
supervisord itself restarts the services; `services.frame.prompt_restarts` makes it restart them at once."""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from supervisor.medusa import asyncore_25 as asyncore
from supervisor.options import ServerOptions, SignalReceiver
from supervisor.states import SupervisorStates
from supervisor.supervisord import Supervisor

from services.frame.exit_codes import REFUSED
from services.kubelet.orphans import end_orphans

_FIRST_SERVICE = 30  # a priority in supervisord.conf; programs with a lower one end after the services


def supervise(conf: str, kept: Sequence[int], fail: Callable[[str], int]) -> int:
    """Run supervisord with this configuration file until a signal ends it. Return the exit code.

    `kept`: descriptors that the services inherit; `fail`: prints a line for the operator and returns the exit code.
    """
    signals = Signals()
    first = True
    while True:
        options = Options(kept, signals, fail)
        options.realize(["-n", "-s", "-c", conf], doc="", progname="kubelet")
        options.first, options.test = first, False
        agent = Agent(options)
        try:
            agent.main()
        except asyncore.ExitNow:
            pass
        except OSError as error:
            return fail(f"{error.filename or conf}: {error.strerror} (repair it)")
        if options.mood < SupervisorStates.RESTARTING:
            end_orphans(Path(conf).parent)
        options.close_httpservers()
        options.close_logger()
        first = False
        if options.mood < SupervisorStates.RESTARTING:
            return 1 if agent.was_refused() and not signals.end_requested else 0


class Signals(SignalReceiver):  # type: ignore[misc]
    """Replaces supervisord's list of signals: the second SIGTERM or SIGINT ends this process at once."""

    def __init__(self) -> None:
        super().__init__()
        self.end_requested = False
        self.children: dict[int, Any] = {}
        self._owner = os.getpid()

    def receive(self, sig: int, frame: FrameType | None) -> None:
        if sig in (signal.SIGTERM, signal.SIGINT) and os.getpid() == self._owner:
            if self.end_requested:
                self._end_at_once()
            self.end_requested = True
        super().receive(sig, frame)

    def _end_at_once(self) -> NoReturn:
        """Kill the services, which is safe, and exit: after a second signal none may run on. Pods keep running."""
        for pid in list(self.children):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os._exit(1)


class Options(ServerOptions):  # type: ignore[misc]
    """Replaces supervisord's options, which also make its system calls."""

    def __init__(self, kept: Sequence[int], signals: Signals, fail: Callable[[str], int]) -> None:
        super().__init__()
        self.kept, self._fail = frozenset(kept), fail
        self.signal_receiver = signals
        signals.children = self.pidhistory

    def openhttpservers(self, supervisord: Supervisor) -> None:
        """Open the servers with SIGTERM and SIGINT blocked until the plug-ins are loaded: supervisord would take an
        exception of a signal for a failure of a plug-in."""
        ends = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        try:
            super().openhttpservers(supervisord)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)

    def fork(self) -> int:
        """Fork, with default signal handlers in the child: until its exec, supervisord's handlers would only put a
        signal into a list."""
        taken = {number for number in signal.valid_signals() if callable(signal.getsignal(number))}
        signal.pthread_sigmask(signal.SIG_BLOCK, taken)
        try:
            child = os.fork()
            if child == 0:
                for number in taken:
                    signal.signal(number, signal.SIG_DFL)
            return child
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, taken)

    def close_fd(self, fd: int) -> None:
        """Close a descriptor, but never one of the operator's streams; a child, too, closes its descriptors with
        this."""
        if fd not in self.kept:
            super().close_fd(fd)

    def cleanup_fds(self) -> None:
        """Close nothing at a SIGHUP: no descriptor is left over, and the lock and the streams must stay open."""

    def usage(self, msg: str) -> NoReturn:
        """Print one line with what supervisord cannot work with. Raises SystemExit."""
        line = " ".join(str(msg).split())
        if "minimum number of file descriptors" in line:
            line = f"the limit of open files is below {self.minfds} (raise it: LimitNOFILE= of the unit, or ulimit -n)"
        if "already listening" in line:
            line = "a kubelet with this run directory is running already (stop it, or give this one another directory)"
        raise SystemExit(self._fail(line))


class Agent(Supervisor):  # type: ignore[misc]
    """Stops all programs of one priority at once, and remembers why bootstrap ended."""

    process_groups: dict[str, Any]
    stop_groups: list[Any] | None

    def was_refused(self) -> bool:
        """Return whether bootstrap ended us because it cannot work."""
        group = self.process_groups.get("bootstrap")
        return group is not None and group.processes["bootstrap"].exitstatus == REFUSED

    def ordered_stop_groups_phase_1(self) -> None:
        for group in self._last_ranks():
            group.stop_all()

    def ordered_stop_groups_phase_2(self) -> None:
        """Do nothing, because the next turn notices which processes have ended."""

    def _last_ranks(self) -> list[Any]:
        """Return all services while one of them runs; then the other programs one by one, the last first."""
        groups = [group for group in self.stop_groups or [] if group.get_unstopped_processes()]
        services = [group for group in groups if group.config.priority >= _FIRST_SERVICE]
        return services or groups[-1:]
