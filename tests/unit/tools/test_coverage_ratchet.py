"""Coverage may only rise, package by package."""

from typing import Any

import pytest

from tools.coverage_ratchet import by_package, fallen, raised


def entry(covered: int, lines: int, covered_branches: int = 0, branches: int = 0) -> dict[str, Any]:
    counts = {"covered_lines": covered, "num_statements": lines}
    return {"summary": counts | {"covered_branches": covered_branches, "num_branches": branches}}


def test_lines_and_branches_of_a_package_are_counted_together() -> None:
    files = {
        "services/podsync/core/a.py": entry(8, 10, 1, 2),
        "services/podsync/service.py": entry(4, 8),
        "bus/process_bus.py": entry(1, 4),
        "bus/__init__.py": entry(0, 0),
    }
    assert by_package({"files": files}) == {"bus": 25.0, "services/podsync": 65.0}


@pytest.mark.parametrize(("percent", "falls"), [(80.0, False), (79.8, False), (79.6, True), (90.0, False)])
def test_less_than_committed_is_named(percent: float, falls: bool) -> None:
    found = fallen({"bus": percent, "new": 1.0}, {"bus": 80.0, "gone": 99.0})
    assert found == ([f"bus: {percent} %, committed are 80.0 %"] if falls else [])


def test_the_higher_figure_is_committed_and_a_package_that_is_gone_leaves() -> None:
    assert raised({"a": 81.27, "b": 70.0}, {"a": 80.0, "b": 75.0, "gone": 99.0}) == {"a": 81.2, "b": 75.0}
