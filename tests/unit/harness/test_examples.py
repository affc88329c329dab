"""Which cases of a test `make quick` and `make test` run."""

from typing import cast

import pytest

from tests.unit.examples import is_in_share, mark_shares


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


class Item:
    """What `mark_shares` uses of a test: `pytest.Item` is made by a session alone."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self._marks = nodeid, [mark.mark for mark in marks]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self._marks if mark.name == name), None)

    def add_marker(self, name: str) -> None:
        self._marks.append(getattr(pytest.mark, name).mark)


@pytest.mark.parametrize(
    ("marks", "cases", "long", "night"),
    [
        ([pytest.mark.share(5, test=4)], 25, 20, 15),
        ([pytest.mark.share(1, test=3), pytest.mark.long], 9, 9, 6),
        ([pytest.mark.share(2)], 4, 2, 0),
        ([], 4, 0, 0),
    ],
)
def test_make_test_runs_what_make_quick_runs_and_a_share_of_the_others(
    marks: list[pytest.MarkDecorator], cases: int, long: int, night: int
) -> None:
    items = [Item(f"test_a.py::test_b[{case}]", *marks) for case in range(cases)]
    mark_shares(cast("list[pytest.Item]", items))
    found = {name: {item.nodeid for item in items if item.get_closest_marker(name)} for name in ("long", "night")}
    assert (len(found["long"]), len(found["night"])) == (long, night)
    assert found["night"] <= found["long"]
