"""A plug-in of pytest for a run of several lanes that share a terminal: `pytest -p tests.queue.lane`.

A failure is printed when it happens, and a test that passes prints nothing.
"""

import pytest

pytest_plugins = ("tests.queue.ending",)


@pytest.hookimpl(tryfirst=True)  # before that of the subtests, which print a letter for each row of a table
def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Called for the letter of each result."""
    if report.skipped:
        return None
    if report.passed:
        return "passed" if report.when == "call" else "", "", ""
    return "failed" if report.when == "call" else "error", "", ""


class _Failures:
    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called with each result."""
        if report.failed:
            self._reporter.ensure_newline()
            row = f" [{report.context.msg}]" if isinstance(report, pytest.SubtestReport) else ""
            self._reporter.write_sep("_", report.nodeid + row, red=True)
            self._reporter.write_line(report.longreprtext)
            for title, text in report.sections:
                self._reporter.write_sep("-", title)
                self._reporter.write_line(text)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Called once the terminal's own plug-in is there."""
    if reporter := config.pluginmanager.get_plugin("terminalreporter"):
        config.pluginmanager.register(_Failures(reporter))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Called after the last test, before the summary: which need not print the failures again."""
    session.config.option.tbstyle = "no"
