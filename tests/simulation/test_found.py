"""Cases that seeds have found: each was a fault of the agent, which must not come back."""

import pytest

from tests.simulation.faults import ClockStep, Kill, RuntimeFault
from tests.simulation.run import Case, check_case, run
from tests.simulation.workload import Act, PodPlan, Run, Workload


def test_a_container_made_after_the_clock_was_set_back_is_the_newest_of_its_name() -> None:
    pod = PodPlan("p", 0.0, "Always", ((Run(2.0, 1), Run()),))
    verdict = check_case(Case(1, Workload((pod,)), (ClockStep(1.0, -3600.0),)))
    assert verdict.violation is None, "\n".join(verdict.lines)


@pytest.mark.long
def test_a_clock_set_back_during_a_back_off_does_not_make_it_last() -> None:
    pod = PodPlan("p", 0.0, "Always", ((Run(1.2, 137), Run(1.2, 137), Run()),))
    verdict = check_case(Case(1, Workload((pod,)), (ClockStep(5.0, -3600.0),)))
    assert verdict.violation is None, "\n".join(verdict.lines)


@pytest.mark.long
def test_a_container_that_could_not_be_stopped_keeps_its_time() -> None:
    pod = PodPlan("p", 0.0, "Always", ((Run(stop=2.5),),), (Act("delete", 5.0),), grace=30)
    fault = RuntimeFault(4.0, 10.0, "StopContainer", "Internal", False, 0.0, 2)
    verdict = check_case(Case(1, Workload((pod,)), (fault,)))
    assert verdict.violation is None, "\n".join(verdict.lines)


@pytest.mark.long
def test_a_pod_deleted_while_one_container_is_being_stopped_stops_the_others_at_once() -> None:
    stubborn, other = (Run(stop=None, alive=4.0),), (Run(stop=2.5),)
    pod = PodPlan(
        "p", 0.0, "Always", (stubborn, other), (Act("delete", 7.0),), grace=30, probes=("liveness",), static=True
    )
    verdict = check_case(Case(1, Workload((pod,)), ()))
    assert verdict.violation is None, "\n".join(verdict.lines)


@pytest.mark.long
def test_a_manifest_that_comes_back_at_once_has_its_mirror_pod_at_once() -> None:
    acts = (Act("delete", 4.0), Act("recreate", 6.0))
    pod = PodPlan("p", 0.0, "Always", ((Run(),),), acts, grace=1, static=True)
    verdict = run(Workload((pod,)), (), 1)
    assert verdict.violation is None
    (again,) = [line for line in verdict.lines if "user       creates pod" in line][1:]
    mirrored = [line for line in verdict.lines if "api        pod p-node1: Pending" in line][-1]
    began, shown = (float(line.split()[1]) for line in (again, mirrored))
    assert shown - began < 2.0, "\n".join(verdict.lines)


@pytest.mark.long
def test_a_clock_set_before_podsync_dies_takes_no_grace_period_away() -> None:
    pod = PodPlan("p", 0.0, "OnFailure", ((Run(stop=2.5),),), (Act("delete", 5.5),), grace=10)
    faults = (ClockStep(5.0, 3600.0), Kill(5.1, "podsync", 0, 0, "podsync.saved", 1.0))
    verdict = check_case(Case(1, Workload((pod,)), faults))
    assert verdict.violation is None, "\n".join(verdict.lines)
