"""A service for tests of the frame: follows the instruction in the file `<BULKHEAD_HOME>/dummy`, else idles.

`fail` raises, `cling` too, with a socket left open that the bus then waits for, `refuse` raises an OperatorError,
`hang` blocks the loop, `stick` lets work wait for what never comes, `spin` computes with the interpreter's lock held,
`stay` ignores being cancelled, `chatter` logs and prints without end, `idle` idles. The watchdog waits for half a
second where the instruction is to hang in some way, or `idle`. Otherwise it waits as long as that of a real service: on
a busy machine an event loop may not turn for a second, and no test expects a restart then.
"""

import asyncio
import logging
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

import zmq

from services.frame import launch as frame
from services.frame.launch import Context
from shared.errors import OperatorError
from shared.process.deadlines import work_on
from shared.process.watchdog import Watchdog

log = logging.getLogger("dummy")


_BRIEFLY_WATCHED = ("hang", "stick", "spin", "idle")
_BRIEF_LIMITS = {"Watchdog": partial(Watchdog, limit=5, tick=0.1), "TICK_SECONDS": 0.1, "MAX_BUSY_SECONDS": 1.0}


def ordered() -> str:
    """Return the instruction in the file, "" where there is none."""
    file = Path(os.environ["BULKHEAD_HOME"]) / "dummy"
    return file.read_text() if file.exists() else ""


class Dummy:
    """A service that idles."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self) -> None:
        """Follow the instruction in the file."""
        order = ordered()
        log.info("dummy runs: %s on %s", order, self._context.config.node_name)
        if order == "cling":
            self._left = vars(self._context.bus)["_context"].socket(zmq.PUSH)
        if order in ("fail", "cling"):
            raise ValueError("as ordered")
        if order == "refuse":
            raise OperatorError("is not to be had", where="the moon", remedy="look up")
        if order == "hang":
            signal.sigtimedwait([], 60)  # blocks the loop
        if order == "stick":
            work_on(self._context.deadlines.begin("the work that was ordered", 0.5))
            await asyncio.Event().wait()
        if order == "spin":
            re.match(r"(a+)+$", "a" * 60 + "b")
        while order == "chatter":
            log.info("x" * 1000)
            print("y" * 1000, flush=True)
            await asyncio.sleep(0.001)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.info("dummy was cancelled, stopping is %s", self._context.stopping.is_set())
            if order != "stay":
                raise
            await asyncio.Event().wait()


if __name__ == "__main__":
    if ordered() in _BRIEFLY_WATCHED:
        for name, value in _BRIEF_LIMITS.items():
            assert hasattr(frame, name), name
            setattr(frame, name, value)
    frame.launch(sys.argv[1], Dummy)
