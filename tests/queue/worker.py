"""Runs one item in a process of pytest, reads what its recorder sends, and ends the process when it hangs.

All that a process of an item starts inherits a mark in its environment, by which it is found and killed when the
process could not take it down itself.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.queue.family import MARK, OF_A_TEST, kill_family
from tests.queue.memory import remove
from tests.queue.planning import Item
from tests.queue.recorder import PIPE

BETWEEN_SECONDS = 300.0  # without a test: imports, collection, the end of a session
_ABORT_SECONDS = 10.0  # for the stacks that pytest prints at SIGABRT
_TAIL = 6000  # characters of the log that show why a process ended
_NORMAL = (0, 1, 5)  # exit codes of pytest: all passed, some failed, nothing to run
_INTERRUPTED = (2, -signal.SIGINT)  # the latter before pytest itself takes the signal


@dataclass(frozen=True)
class Ended:
    """How a process ended: `failure` names what is wrong beyond its failed tests, "" for nothing; `log`: its output."""

    seconds: float
    failure: str
    log: Path


class Worker:
    """The process of one item. `directory`: takes its log and junit file; `scratch`: its temporary files; `grace`:
    seconds beyond the timeout of a test until the process counts as hung, and for its end after Ctrl-C."""

    def __init__(
        self, item: Item, number: int, *, directory: Path, scratch: Path, grace: float, arguments: list[str]
    ) -> None:
        self._grace = grace
        self._mark = f"{os.getpid()}.{number}"
        self._scratch = scratch / str(number)
        self._log = directory / f"{number:03}.log"
        self._command = [
            *(sys.executable, "-m", "pytest", "-p", "tests.queue.compiled", "-p", "tests.queue.recorder"),
            *("-p", "tests.queue.ending", "-p", "no:cacheprovider"),
            *("-c", "pyproject.toml", "--continue-on-collection-errors"),
            *(("-o", "tmp_path_retention_policy=failed") if item.computes else ()),  # they may be in memory
            *(f"--basetemp={self._scratch}", f"--junit-xml={directory}/{number:03}.xml"),
            *arguments,
            *item.files,
        ]
        name, _, value = item.again.partition("=")
        others = {name: value for name, value in os.environ.items() if name != OF_A_TEST}
        self._environment = {**others, **({name: value} if name else {}), MARK: self._mark}
        self._process: asyncio.subprocess.Process | None = None
        self._interrupted = False
        self._running = ""  # the test that runs
        self._collected, self._ended = 0, 0
        self._limit: asyncio.Timeout | None = None  # while the process runs

    async def run(self, receive: Callable[[dict[str, Any]], None]) -> Ended:
        """Run the item; `receive` gets each line of the recorder. Return when nothing of it is left."""
        began = time.monotonic()
        hung = ""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        lines = _Lines(reading)
        loop = asyncio.get_running_loop()

        def take() -> None:
            for line in lines.read():
                self._follow(line)
                receive(line)

        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
                start_new_session=True,
                env={**self._environment, PIPE: str(writing)},
            )
            os.close(writing)
            loop.add_reader(reading, take)
            try:
                async with asyncio.timeout(BETWEEN_SECONDS) as self._limit:
                    if self._interrupted:  # while the process was started
                        self.interrupt()
                    await self._process.wait()
            except TimeoutError:
                hung = f"hung in {self._running or 'no test'}"
                await self._abort()
            finally:
                self._limit = None
                loop.remove_reader(reading)
            code = await self._process.wait()
            take()
            os.close(reading)
        failure = hung or self._check_end(code)
        self.kill()
        if not failure and code in (0, 5):
            remove(self._scratch)  # what a failure has left stays
        return Ended(time.monotonic() - began, failure, self._log)

    def interrupt(self) -> None:
        """Send SIGINT to pytest, which takes down what its tests have started; what still runs later is hung."""
        self._interrupted = True
        if self._process is not None and self._process.returncode is None:
            self._allow(self._grace, more=False)
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill the process and all that it has started, and the containers of what it has started."""
        kill_family(self._mark)

    def tail(self) -> str:
        """Return the end of what the process has printed."""
        return self._log.read_text(errors="replace")[-_TAIL:]

    async def _abort(self) -> None:
        """End a process that hangs; pytest prints its stacks at SIGABRT, unless it is stopped."""
        assert self._process is not None
        try:
            self._process.send_signal(signal.SIGABRT)
            async with asyncio.timeout(_ABORT_SECONDS):
                await self._process.wait()
        except (ProcessLookupError, TimeoutError):
            pass
        self.kill()

    def _allow(self, seconds: float, *, more: bool = True) -> None:
        """Let the process hang for so long from now before it is ended; without `more`, at most."""
        if self._limit is not None:
            when = asyncio.get_running_loop().time() + seconds
            self._limit.reschedule(when if more else min(when, self._limit.when() or when))

    def _follow(self, line: dict[str, Any]) -> None:
        match line["what"]:
            case "collected":
                self._collected = line["count"]
            case "start":
                self._running = line["test"]
                self._allow((line["timeout"] or float("inf")) + self._grace)
            case "end":
                self._running = ""
                self._ended += 1
                self._allow(BETWEEN_SECONDS)

    def _check_end(self, code: int) -> str:
        """Return what is wrong with the end of a process, "" when it has ended as pytest does."""
        if self._interrupted and code in _INTERRUPTED:
            return ""
        left = self._collected - self._ended
        unknown = f"; {left} of its {self._collected} tests have no result" if left else ""
        where = f" in {self._running}" if self._running else ""
        if code < 0:
            return f"killed by {signal.Signals(-code).name}{where}{unknown}"
        if code not in _NORMAL or left:
            return f"ended with exit code {code}{where}{unknown}"
        return ""


class _Lines:
    """Reads complete lines from an open file that does not block."""

    def __init__(self, file: int) -> None:
        self._file, self._rest = file, b""

    def read(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                got = os.read(self._file, 1 << 16)
            except BlockingIOError:
                return
            if not got:
                return
            *complete, self._rest = (self._rest + got).split(b"\n")
            yield from (json.loads(line) for line in complete)
