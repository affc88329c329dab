"""A node that another agent takes and gives back, twice within a minute: a static pod runs once at any time."""

import pytest

from tests.simulation.faults import CRASH_POINTS, Fault, Kill, OtherAgentRuns
from tests.simulation.run import Verdict, run
from tests.simulation.workload import PodPlan, Run, Workload

TAKEN = (4.0, 20.0)  # seconds; the record of the other agent's pod is 10 s old at the second time
AWAY = 3.0  # seconds
BACK = TAKEN[1] + AWAY


def taken_twice(*faults: Fault) -> Verdict:
    pod = PodPlan("p", 0.0, "Always", ((Run(),),), grace=1, static=True, volumes=("empty",))
    taken = [OtherAgentRuns(at, AWAY, "p-node1_default") for at in TAKEN]
    return run(Workload((pod,)), (*taken, *faults), 1)


@pytest.mark.share(4)
@pytest.mark.parametrize("point", ["", *CRASH_POINTS["podsync"]])
def test_a_static_pod_runs_once_at_any_time_also_where_podsync_is_killed(point: str) -> None:
    kills = (Kill(BACK + 0.1, "podsync", 0, 0, point, 0.3),) if point else ()
    verdict = taken_twice(*kills)
    assert verdict.violation is None, "\n".join(verdict.lines)
    assert verdict.state["runtime p-node1"] == {"sandboxes": 1, "running": ["c0"], "created": []}
    assert sum("StartContainer of podsync" in line for line in verdict.lines) == 3


@pytest.mark.long
@pytest.mark.share(1, test=3)
@pytest.mark.parametrize("service", ["podsync", "pleg", "volume", "sources"])
@pytest.mark.parametrize("steps", range(1, 120, 7))
def test_a_kill_at_any_turn_doubles_nothing(service: str, steps: int) -> None:
    verdict = taken_twice(Kill(BACK, service, steps, 20 * (steps % 3), "", 0.3))
    assert verdict.violation is None, "\n".join(verdict.lines)
    assert verdict.state["runtime p-node1"] == {"sandboxes": 1, "running": ["c0"], "created": []}
