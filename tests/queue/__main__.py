"""`python -m tests.queue [PATHS] [-- ARGUMENTS OF PYTEST]`: runs test files in several processes, the longest first.

Prints each failure when it happens; at the end a table by level, the failures again, and "N passed, M failed". Exit
codes: 0 all passed, 1 something failed or nothing ran, 2 bad arguments, 130 interrupted by Ctrl-C or SIGTERM. What it
leaves in build/tests: a log and a junit file of each process, and durations.tsv.
"""

import argparse
import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.queue.family import GRACE_SECONDS
from tests.queue.memory import begin_in
from tests.queue.planning import Item, find_files, level_of, longest_first, plan, take
from tests.queue.preloading import shared_interpreters
from tests.queue.report import CACHED, CHECKED_IN, Report, check_in, read_durations, write_durations
from tests.queue.worker import Worker

ROOT = Path(__file__).resolve().parents[2]


class Queue:
    """Runs items in `workers` processes at a time. `scratch` takes the temporary files of their tests, `memory` of
    those that compute."""

    def __init__(self, files: list[str], options: argparse.Namespace, scratch: Path, memory: Path) -> None:
        self._known = read_durations(CHECKED_IN, CACHED)
        first = plan(files, self._known, lent=_lent(files), marks=options.marks)
        self._items = longest_first([*first, *_plan_again(files, options.also, self._known)])
        self._options, self._scratch, self._memory = options, scratch, memory
        self._running: set[Worker] = set()
        self._number = 0
        self.interrupted = False
        self.durations: dict[str, float] = {}  # of the files, in seconds
        self.report = Report(len(self._items))

    async def run(self) -> None:
        """Run everything; the first worker takes what computes while there is any."""

        async def work(number: int) -> None:
            while self._items and not self.interrupted:
                await self._run(take(self._items, computing=number == 0))

        await asyncio.gather(*(work(number) for number in range(self._options.workers)))
        self.durations = {file: s for file, s in self.report.durations.items() if level_of(file) != "other"}

    def interrupt(self) -> None:
        """Start nothing more and let pytest take down what runs; the second time, kill it."""
        if self.interrupted:
            for worker in self._running:
                worker.kill()
            return
        print(f"\ninterrupted: up to {self._options.grace:.0f} s to take everything down; again to kill it", flush=True)
        self.interrupted = True
        for worker in self._running:
            worker.interrupt()

    async def _run(self, item: Item) -> None:
        self._number += 1
        arguments = [*(("-m", item.marks) if item.marks else ()), *self._options.arguments]
        worker = Worker(
            item,
            self._number,
            directory=self._options.build,
            scratch=self._memory if item.computes else self._scratch,
            grace=self._options.grace,
            arguments=arguments,
        )
        self._running.add(worker)
        try:
            ended = await worker.run(lambda line: self.report.receive(item, line))
        finally:
            self._running.discard(worker)
        self.report.finish(item, ended, worker.tail() if ended.failure else "")


def _plan_again(files: list[str], also: list[str], known: Mapping[str, float]) -> list[Item]:
    """Return the items for `--also`: a file that uses the mark names it."""
    items: list[Item] = []
    for again, _, mark in (each.rpartition(":") for each in also):
        marked = [file for file in files if f"mark.{mark}" in (ROOT / file).read_text()]
        items += plan(marked, known, lent=_lent(marked), again=again, marks=mark)
    return items


def _lent(files: list[str]) -> dict[str, str]:
    """Return the files whose clusters can have one control plane after the other, with what it is made with."""
    found: dict[str, str] = {}
    for file in files:
        text = (ROOT / file).read_text()
        if re.search(r"agents\.behaviour import .*\b(Node|PLANE)\b", text):
            found[file] = "feature gates"
        elif "clusters.cluster import Cluster" in text and "plane=" not in text:
            found[file] = "no arguments"
    return found


def _parse(arguments: list[str]) -> argparse.Namespace:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m tests.queue", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", default=["tests"], help="test files and directories (default: tests)")
    parser.add_argument("--workers", type=int, default=3 * (os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("-m", dest="marks", default="", help="an expression of marks, as for pytest")
    again = "run the tests with this mark once more with this variable of the environment; may be repeated"
    parser.add_argument("--also", action="append", default=[], metavar="NAME=VALUE:MARK", help=again)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "tests", help="takes logs, junit and durations")
    parser.add_argument(
        "--check-in", action="store_true", help="write the long durations into tests/queue/durations.tsv"
    )
    parser.add_argument("--grace", type=float, default=GRACE_SECONDS, help="seconds until a process counts as hung")
    options = parser.parse_args(arguments[:split])
    if options.workers < 1:
        parser.error("--workers must be at least 1")
    if any("=" not in each.rpartition(":")[0] for each in options.also):
        parser.error("--also must be NAME=VALUE:MARK")
    options.arguments = arguments[split + 1 :]
    return options


async def _run_all(files: list[str], options: argparse.Namespace) -> int:
    shutil.rmtree(options.build, ignore_errors=True)
    options.build.mkdir(parents=True)
    scratch = Path(tempfile.mkdtemp(prefix="bulkhead-"))
    memory = begin_in() or scratch
    queue = Queue(files, options, scratch, memory)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, queue.interrupt)
    with shared_interpreters() as variables:
        os.environ |= variables
        await queue.run()
    passed = queue.report.close()
    for directory in {scratch, memory}:
        if not any(directory.iterdir()):
            directory.rmdir()
    if queue.interrupted:
        return 130
    unfiltered = not (options.marks or options.arguments or os.environ.get("NIGHT"))
    write_durations(options.build / "durations.tsv", queue.durations)
    if unfiltered and queue.durations:
        write_durations(CACHED, {**read_durations(CACHED), **queue.durations})
    if options.check_in:
        check_in(queue.durations)
    return 0 if passed else 1


def main() -> int:
    """Run the tests that the command line names and return the exit code."""
    options = _parse(sys.argv[1:])
    os.chdir(ROOT)
    try:
        files = find_files(options.paths, ROOT)
    except FileNotFoundError as error:
        print(f"tests.queue: {error.args[0]}: no such file or directory", file=sys.stderr)
        return 2
    return asyncio.run(_run_all(files, options))


if __name__ == "__main__":
    sys.exit(main())
