"""Lists of CPUs are read and written as the kernel has them."""

import pytest

from shared.model.cpu_list import parse_cpus, write_cpus


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", {0}), ("0-2,5", {0, 1, 2, 5}), ("3-3", {3}), ("", None), ("1-", None), ("a", None), ("0,,1", None)],
)
def test_lists_of_cpus(text: str, cpus: set[int] | None) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize(
    ("cpus", "text"), [([], ""), ([3], "3"), ([1, 0], "0-1"), ([9, 2, 0, 1, 4, 10], "0-2,4,9-10"), ([5, 5], "5")]
)
def test_a_written_list_has_ranges_in_ascending_order(cpus: list[int], text: str) -> None:
    assert write_cpus(cpus) == text
