"""What counts as a pass of a file of tests that runs in a machine."""

from subprocess import CompletedProcess

import pytest

from tests.machine.checkout_inside import all_passed


@pytest.mark.parametrize(
    ("code", "end", "passed"),
    [
        (0, "6 passed in 81.20s (0:01:21)", True),
        (0, "6 passed, 1 deselected in 3.10s", True),
        (0, "6 passed, 2 deselected, 1 warning in 3.10s", True),
        (0, "5 passed, 1 skipped, 1 warning in 3.10s", False),
        (0, "5 passed, 1 skipped in 3.10s", False),
        (0, "1 skipped in 0.10s", False),
        (1, "1 failed, 5 passed in 3.10s", False),
        (-9, "", False),
    ],
)
def test_a_file_passes_where_no_test_fails_and_none_is_skipped(code: int, end: str, passed: bool) -> None:
    assert all_passed(CompletedProcess([], code, f"......\n{end}\n", "")) is passed
