"""A service killed at each of its crash points, one at a time: the node ends as the undisturbed one."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulation.faults import Kill
from tests.simulation.node import Node
from tests.simulation.run import Case, check_case, clear_memory, draw, in_memory, run
from tests.support.source.crash_points import SIMULATED

SEED = 33  # its workload comes to every point


@pytest.fixture(scope="module")
def reached() -> Iterator[dict[str, float]]:
    """Point -> the seconds at which the undisturbed run first comes to it."""
    found: dict[str, float] = {}
    at_point = Node.crash_point

    def crash_point(node: Node, name: str) -> bool:
        found.setdefault(name, node.story.seconds)
        return at_point(node, name)

    in_memory("points")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "crash_point", crash_point)
        assert run(draw(SEED).workload, (), SEED).violation is None
    yield found
    clear_memory("points")


# The short lane has one of each service, `make test` those around the changes of a pod, `make night` all.
SHORT = {"podsync.saved.KillPod", "volume.acted.MountVolume", "sources.saved"}
LONG = {"podsync.acted.RunPodSandbox", "podsync.acted.StartContainer", "podsync.acted.ReleasePod", "sources.published"}


def each() -> list[Any]:
    marks = {**dict.fromkeys(SHORT, ()), **dict.fromkeys(LONG, (pytest.mark.long,))}
    return [pytest.param(point, marks=marks.get(point, (pytest.mark.night,))) for point in SIMULATED]


@pytest.mark.parametrize("point", each())
def test_a_kill_at_a_crash_point_changes_nothing_in_the_end(reached: dict[str, float], point: str) -> None:
    kill = Kill(max(reached[point] - 1.0, 0.0), point.split(".")[0], 0, 0, point, 0.5)
    verdict = check_case(Case(SEED, draw(SEED).workload, (kill,)))
    assert any(f"at {point}" in line for line in verdict.lines), "it was never killed"
    assert verdict.violation is None, "\n".join(verdict.lines)


def test_the_workloads_come_to_no_point_that_the_list_does_not_have(reached: dict[str, float]) -> None:
    assert reached.keys() == set(SIMULATED)
