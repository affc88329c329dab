"""Makes supervisord act at once on a signal, on the end of a process, and at its start, and not up to 2 s later.
supervisord's poll continues after a signal until its second is over. supervisord then starts processes, collects the
children that ended, and polls for another second. That second stays as the pause before the start of a process that
ends within a second: it is started at most once a second.
"""

import os
import signal
import stat
import time
from collections.abc import Callable
from typing import Any

RUNNING = 1  # supervisor.states.SupervisorStates.RUNNING; less while it restarts or ends
_MIN_START_SECONDS = 1.0  # between two starts of a program that ends at once


def restart_promptly(options: Any, clock: Callable[[], float] = time.monotonic) -> None:
    """Let supervisord's poll end with each signal, and at once in its first turn and after a child was collected.
    `options`: supervisord's ServerOptions, not yet in use; a reload makes new ones. `clock` returns seconds.
    """
    fork, collect, poller, clean_up = options.fork, options.waitpid, options.poller, options.cleanup
    poll = poller.poll
    woken, written = _wakeup()
    started: dict[int, float] = {}  # by process id
    turn_at_once, pause_until = True, 0.0

    def noted_fork() -> int:
        if pid := int(fork()):
            started[pid] = clock()
        return pid

    def noted_collect() -> tuple[int | None, int | None]:
        nonlocal turn_at_once, pause_until
        pid, status = collect()
        if pid:
            earliest = started.pop(pid, 0.0) + _MIN_START_SECONDS
            turn_at_once = turn_at_once or earliest <= clock()
            pause_until = max(pause_until, earliest)
        return pid, status

    def prompt_poll(timeout: float) -> Any:
        nonlocal turn_at_once
        now = clock()
        pausing = pause_until > now and options.mood >= RUNNING
        end = now if turn_at_once else now + timeout
        if pausing:
            end = min(pause_until, now + timeout)
        turn_at_once = False
        while True:
            poller.register_readable(woken)
            readable, writable = poll(max(end - clock(), 0))
            # One byte, because supervisord handles one signal in a turn.
            number = os.read(woken, 1) if woken in readable else b""
            readable = [fd for fd in readable if fd != woken]
            of_children = not writable and number in (b"", bytes([signal.SIGCHLD])) and all(map(_is_pipe, readable))
            if not (pausing and of_children and clock() < end):
                return readable, writable
            for fd in readable:  # until the next turn, because the pipe of a child that has ended is always readable
                poller.unregister_readable(fd)

    def closing_cleanup() -> None:
        """Close the pipe before a reload, in which supervisord closes every descriptor and opens others under their
        numbers."""
        signal.set_wakeup_fd(-1)
        os.close(woken)
        os.close(written)
        clean_up()

    options.fork, options.waitpid, poller.poll = noted_fork, noted_collect, prompt_poll
    options.cleanup = closing_cleanup


def _wakeup() -> tuple[int, int]:
    """Make a pipe that every signal writes to, and return its reading and its writing end."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read, write


def _is_pipe(fd: int) -> bool:
    return stat.S_ISFIFO(os.fstat(fd).st_mode)
