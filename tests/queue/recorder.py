"""A plugin of pytest that sends what happens in its process to the queue, one JSON object a line, at once.

What was sent before the process is killed is known. The lines: `collected` (how many tests will run), `start` (a test,
and after how many seconds it is given up), `fail` (a test or file, and what to print), `end` (a test, its outcome, its
seconds with fixtures, and why it was skipped) and `cpu` (seconds of the process and its children, at its end).
"""

import json
import os
import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest

PIPE = "TEST_QUEUE_PIPE"  # environment: the number of the open file that the lines go to
MAX_TEXT = 100_000  # characters of one failure


class Recorder:
    """Sends the results of one session to the open file `pipe`."""

    def __init__(self, pipe: int, timeout: float) -> None:
        self._pipe, self._timeout = pipe, timeout
        self._test, self._outcome, self._why = "", "", ""

    def send(self, what: str, **values: Any) -> None:
        """Write one line. Raises BrokenPipeError when the queue has ended, which ends the session."""
        left = json.dumps({"what": what, **values}).encode() + b"\n"
        while left:
            left = left[os.write(self._pipe, left) :]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if report.failed:
            self.send("fail", test=_file_of(collector), text=report.longreprtext[-MAX_TEXT:])
        return report

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.send("collected", count=len(session.items))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        marker = item.get_closest_marker("timeout")
        timeout = next(iter(marker.args), marker.kwargs.get("timeout")) if marker is not None else self._timeout
        self._test = f"{_file_of(item)}::{item.nodeid.partition('::')[2]}"
        self.send("start", test=self._test, timeout=float(timeout or 0))
        self._outcome, self._why = "passed", ""
        began = time.monotonic()
        result = yield
        seconds = round(time.monotonic() - began, 3)
        self.send("end", test=self._test, outcome=self._outcome, seconds=seconds, why=self._why)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._outcome = "failed"
            row = [f"[{report.context.msg}]"] if isinstance(report, pytest.SubtestReport) else []
            parts = [*row, report.longreprtext, *(f"--- {title} ---\n{text}" for title, text in report.sections)]
            self.send("fail", test=self._test, when=report.when, text="\n".join(parts)[-MAX_TEXT:])
        elif report.skipped and self._outcome == "passed":
            self._outcome = "skipped"
            self._why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""

    def pytest_sessionfinish(self) -> None:
        times = os.times()
        self.send("cpu", seconds=round(sum(times[:4]), 2))


def _file_of(item: pytest.Item | pytest.Collector) -> str:
    """Return the item's file, relative to the root where it is below it: its id has no name for others."""
    root = item.config.rootpath
    return str(item.path.relative_to(root)) if item.path.is_relative_to(root) else str(item.path)


def pytest_configure(config: pytest.Config) -> None:
    """Send to the pipe that the queue has given; without one, do nothing."""
    if number := os.environ.pop(PIPE, ""):
        os.set_inheritable(int(number), False)
        config.pluginmanager.register(Recorder(int(number), float(config.getini("timeout") or 0)), "test-queue")
