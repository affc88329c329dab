"""Ends the process of pytest right after its tests: a plug-in, `pytest -p tests.queue.ending`.

The memory is not freed before: to free the syntax trees of the architecture tests and thousands of
collected tests takes seconds.
"""

import atexit
import os
import sys

import pytest

_exit_codes: list[int] = []


def pytest_sessionfinish(exitstatus: int) -> None:
    """Called after the last test."""
    _exit_codes.append(int(exitstatus))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Called at the end of all."""
    if _exit_codes and "coverage" not in sys.modules:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(_exit_codes[-1])
