"""Prints what the queue's processes send, when it comes, and keeps the durations of the files.

Durations are kept in the build directory (all files), in the machine's cache (from run to run) and beside this module
(the long ones, for a machine that has none yet); lines are seconds, a tab, the file.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.queue.planning import Item, run_of
from tests.queue.worker import Ended

CHECKED_IN = Path(__file__).with_name("durations.tsv")
CACHED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bulkhead" / "test-durations.tsv"
MIN_CHECKED_IN_SECONDS = 5.0


def read_durations(*files: Path) -> dict[str, float]:
    """Return the seconds of each test file; a later one of `files` counts more. What cannot be read has none."""
    durations: dict[str, float] = {}
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            seconds, _, name = line.partition("\t")
            try:
                durations[name] = float(seconds)
            except ValueError:
                continue
    return durations


def write_durations(file: Path, durations: Mapping[str, float]) -> None:
    """Replace the file with these durations, the longest first. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = sorted(durations.items(), key=lambda entry: (-entry[1], entry[0]))
    scratch = file.with_name(f"{file.name}.{os.getpid()}")
    scratch.write_text("".join(f"{seconds:.1f}\t{name}\n" for name, seconds in lines))
    scratch.replace(file)


@dataclass
class _Row:
    """The sums of one level; `cpu`: seconds of its processes and their children."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    cpu: float = 0.0


class Report:
    """Collects the results of a run and prints them. `total`: how many items it has."""

    def __init__(self, total: int) -> None:
        self._rows: dict[str, _Row] = defaultdict(_Row)
        self._failures: list[str] = []
        self._skipped: Counter[str] = Counter()  # why -> tests
        self._began = time.monotonic()
        self._total, self._done = total, 0
        self._counts: dict[Item, _Row] = defaultdict(_Row)
        self.durations: dict[str, float] = defaultdict(float)  # of the runs of files, in seconds, with fixtures

    def receive(self, item: Item, line: Mapping[str, Any]) -> None:
        """Take a line of the recorder of this item; print a failure at once."""
        row, own = self._rows[item.level], self._counts[item]
        match line["what"]:
            case "fail":
                self.fail(
                    item, f"{line['test']}{' (teardown)' if line.get('when') == 'teardown' else ''}", line["text"]
                )
            case "end":
                self.durations[run_of(line["test"].split("::")[0], item.again)] += line["seconds"]
                row.seconds += line["seconds"]
                if line["outcome"] == "skipped":
                    self._skipped[line["why"].removeprefix("Skipped: ")] += 1
                if line["outcome"] != "failed":  # those are counted as they are printed
                    for each in (row, own):
                        setattr(each, line["outcome"], getattr(each, line["outcome"]) + 1)
            case "cpu":
                row.cpu += line["seconds"]

    def fail(self, item: Item, what: str, text: str) -> None:
        """Print a failure and keep its name for the end."""
        what = f"{what} ({item.again})" if item.again else what
        self._rows[item.level].failed += 1
        self._counts[item].failed += 1
        self._failures.append(what)
        print(f"\n===== FAILED {what} =====\n{text.rstrip()}\n", flush=True)

    def finish(self, item: Item, ended: Ended, tail: str) -> None:
        """Print the line of an item whose process has ended, and its failure if the process itself failed."""
        self._done += 1
        if ended.failure:
            self.fail(item, f"{item.name}: {ended.failure}", f"{tail}\n(all of it: {ended.log})")
        own = self._counts[item]
        counts = ", ".join(
            f"{getattr(own, name)} {name}" for name in ("passed", "failed", "skipped") if getattr(own, name)
        )
        clock = time.strftime("%M:%S", time.gmtime(time.monotonic() - self._began))
        print(
            f"{clock} [{self._done}/{self._total}] {item.name}: {counts or 'no tests'}, {ended.seconds:.0f} s",
            flush=True,
        )

    def close(self) -> bool:
        """Print the table, why tests were skipped, and the failures again. Return whether everything that ran has
        passed, and something has."""
        print(f"\n{'level':14}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}{'CPU s':>8}")
        total = _Row()
        for level, row in sorted(self._rows.items()):
            _print_row(level, row)
            for name in vars(total):
                setattr(total, name, getattr(total, name) + getattr(row, name))
        _print_row("all", total)
        print(f"{time.monotonic() - self._began:.0f} s from the first to the last")
        if self._skipped:
            print("\nskipped:", *(f"  {count}: {why}" for why, count in self._skipped.most_common()), sep="\n")
        if self._failures:
            print("\nfailed:", *(f"  {what}" for what in self._failures), sep="\n")
        print(f"\n{total.passed} passed, {total.failed} failed", flush=True)
        return bool(total.passed) and not total.failed


def check_in(durations: Mapping[str, float]) -> None:
    """Write the long ones of these durations, and those known of other files, beside this module."""
    known = {file: seconds for file, seconds in read_durations(CHECKED_IN).items() if Path(file.split()[0]).exists()}
    every = {**known, **durations}
    write_durations(CHECKED_IN, {file: s for file, s in every.items() if s >= MIN_CHECKED_IN_SECONDS})


def _print_row(level: str, row: _Row) -> None:
    print(f"{level:14}{row.passed:8}{row.failed:8}{row.skipped:8}{row.seconds:9.0f}{row.cpu:8.0f}")
