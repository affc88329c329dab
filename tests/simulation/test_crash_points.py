"""A service killed at each of its crash points, one at a time: the node ends as the undisturbed one."""

from typing import Any

import pytest

from tests.simulation.faults import Kill
from tests.simulation.points import moments
from tests.simulation.run import Case, check_case, draw
from tests.support.source.crash_points import SIMULATED

SEED = 33  # its workload comes to every point but those of UPDATING
UPDATING = 40  # its workload changes a Secret that is mounted

Reached = dict[str, tuple[int, float]]


@pytest.fixture(scope="module")
def reached() -> Reached:
    """Point -> the seed, and the seconds at which its undisturbed run first comes to the point."""
    updating, most = (
        {p: (seed, m[0]) for p, m in moments(draw(seed).workload, seed).items()} for seed in (UPDATING, SEED)
    )
    return updating | most


SHORT = {"podsync.saved.KillPod", "volume.acted.MountVolume", "sources.saved"}  # one of each service in the short lane


def each() -> list[Any]:
    return [pytest.param(point, marks=() if point in SHORT else (pytest.mark.long,)) for point in SIMULATED]


@pytest.mark.share(3, test=2)
@pytest.mark.parametrize("point", each())
def test_a_kill_at_a_crash_point_changes_nothing_in_the_end(reached: Reached, point: str) -> None:
    seed, seconds = reached[point]
    kill = Kill(max(seconds - 1.0, 0.0), point.split(".")[0], 0, 0, point, 0.5)
    verdict = check_case(Case(seed, draw(seed).workload, (kill,)))
    assert any(f"at {point}" in line for line in verdict.lines), "it was never killed"
    assert verdict.violation is None, "\n".join(verdict.lines)


def test_the_workloads_come_to_no_point_that_the_list_does_not_have(reached: Reached) -> None:
    assert reached.keys() == set(SIMULATED)
