"""The tests that are skipped where pods run in Docker, and the table of docs/docker.md, name the same limits."""

import re

from tests.architecture.checkout import python_files, text_of
from tests.support.runtime.docker_limits import Limit

_MARK = re.compile(r"\bmark\.beyond_docker\(([^\s,)]*)")


def rows() -> list[str]:
    """The first cell of each row of the table."""
    section = text_of("docs/docker.md").partition("\n## What it does not do\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [line.split(" | ")[0].removeprefix("| ") for line in lines[1:]]


def test_each_limit_is_a_row_of_the_table() -> None:
    assert len(rows()) > 10
    assert {limit.value for limit in Limit} <= set(rows())


def test_each_limit_skips_a_test_and_nothing_else_does() -> None:
    marks = [mark for file in python_files("tests") for mark in _MARK.findall(text_of(file))]
    assert set(marks) == {str(Limit.__name__) + "." + limit.name for limit in Limit}
