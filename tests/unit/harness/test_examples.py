"""Which cases of a test `make quick` runs."""

import pytest

from tests.unit.examples import is_in_share


@pytest.mark.parametrize("of", [1, 2, 3, 4, 5])
def test_one_of_each_group_of_cases_is_run(of: int) -> None:
    for first in range(0, 20 * of, of):
        assert sum(is_in_share(case, of) for case in range(first, first + of)) == 1


def test_each_value_of_each_argument_is_run_also_where_they_are_combined() -> None:
    pairs = [(outer, inner) for outer in range(8) for inner in range(4)]
    run = [pair for case, pair in enumerate(pairs) if is_in_share(case, 4)]
    assert {outer for outer, _ in run} == set(range(8)) and {inner for _, inner in run} == set(range(4))


def test_a_test_with_one_case_is_run() -> None:
    assert is_in_share(0, 4)
