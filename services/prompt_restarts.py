"""Makes supervisord start a process that ended at once, not up to two seconds later.

supervisord's poll goes on after a signal until its second is over. It then collects the children that ended, after it
has looked which processes are to be started, and polls for another second. Decides nothing about restarts.
"""

import functools
import os
import signal
from typing import Any


def restart_promptly(options: Any) -> None:
    """Let supervisord's poll end with each signal, and at once after a child was collected. `options`: its
    ServerOptions, of whichever front: one that has its own wake-up sets that afterwards, in place of this."""
    collect, poller = options.waitpid, options.poller
    poll, woken = poller.poll, _wakeup()
    collected = False

    def noted_collect() -> tuple[int | None, int | None]:
        nonlocal collected
        pid, status = collect()
        collected = collected or bool(pid)
        return pid, status

    def prompt_poll(timeout: float) -> Any:
        nonlocal collected
        seconds, collected = (0 if collected else timeout), False
        poller.register_readable(woken)
        readable, writable = poll(seconds)
        if woken in readable:
            os.read(woken, 4096)
        return [fd for fd in readable if fd != woken], writable

    options.waitpid, poller.poll = noted_collect, prompt_poll


@functools.cache
def _wakeup() -> int:
    """The end to read of a pipe that every signal writes to; one for the process, also after a reload."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read
