"""volume or podsync is killed at each step of a resource claim, beside a driver that is alive, gone, slow, silent or
dies in the call: containers run with their claims, and in the end what pods need is prepared and nothing else."""

import os
from random import Random

import pytest

from shared.model.frozen_copy import replace
from tests.simulation.faults import Fault, Kill, MachineBoots, PluginFault
from tests.simulation.points import STATES, each, moments, plugin_faults
from tests.simulation.run import Case, check_case, draw, run
from tests.simulation.workload import Act, PodPlan, Run, Workload

WORKLOAD = Workload(
    (
        PodPlan("stays", 0.0, "Always", ((Run(),), (Run(),)), claims=("own", "shared")),
        PodPlan("goes", 2.0, "Always", ((Run(),),), claims=("shared", "other"), acts=(Act("delete", 8.0),)),
        PodPlan("ends", 4.0, "Never", ((Run(5.0),),), claims=("third",)),
    )
)
AFTER_ANOTHER = Workload(  # the first pod ends, and then another one comes for its claim
    (
        PodPlan("first", 0.0, "Always", ((Run(),),), claims=("shared",), acts=(Act("delete", 8.0),)),
        PodPlan("next", 11.0, "Always", ((Run(),),), claims=("shared",)),
        PodPlan("other", 13.0, "Always", ((Run(),),), claims=("of-other",)),
    )
)
POINTS = (
    *(f"volume.claim.{step}" for step in ("saved", "answered", "prepared", "recorded", "unprepared")),
    *(f"podsync.{step}.RunPodSandbox" for step in ("saved", "published", "acted")),
    *(f"podsync.{step}.CreateContainer" for step in ("saved", "acted")),
)
SHORT = {("volume.claim.answered", state) for state in STATES}  # in the short lane
SEEDS = range(24 if os.environ.get("NIGHT") else 12)

Reached = dict[str, list[float]]


@pytest.fixture(scope="module")
def reached() -> Reached:
    """Point -> the seconds at which the undisturbed run comes to it, once for each second."""
    found: Reached = {}
    for point, every in moments(WORKLOAD).items():
        for seconds in every:
            if point not in found or seconds - found[point][-1] > 1.0:
                found.setdefault(point, []).append(seconds)
    return found


@pytest.mark.long
def test_an_undisturbed_node_keeps_what_pods_need(reached: Reached) -> None:
    assert set(POINTS) <= reached.keys()
    verdict = run(WORKLOAD, (), 1)
    wanted = ["own", "shared"]
    assert verdict.state["claims"] == {"prepared": wanted, "in the record": wanted, "in the checkpoint": wanted}


@pytest.mark.share(5, test=3)
@pytest.mark.parametrize(("point", "state"), each(POINTS, SHORT))
def test_what_pods_need_is_prepared_in_the_end_and_nothing_else(reached: Reached, point: str, state: str) -> None:
    killed = False
    for seconds in reached[point]:
        kill = Kill(max(seconds - 0.5, 0.0), point.split(".")[0], 0, 0, point, 0.5)
        verdict = check_case(Case(1, WORKLOAD, (*plugin_faults(state, seconds), kill)))
        assert verdict.violation is None, "\n".join(verdict.lines)
        killed = killed or any(f"at {point}" in line for line in verdict.lines)
    assert killed or state in ("dies", "silent"), "it was never killed there"


@pytest.mark.share(4, test=2)
@pytest.mark.parametrize(
    "fault",
    [
        PluginFault(7.0, 5.0, "silent"),
        PluginFault(7.0, 15.0, "slow"),
        PluginFault(7.0, 8.0, "dies"),
        Kill(7.5, "volume", 0, 0, "volume.claim.unprepared", 3.0),
    ],
    ids=["silent", "slow", "dies", "killed"],
)
def test_a_pod_that_comes_for_the_claim_of_one_that_has_ended_has_it_prepared(fault: Fault) -> None:
    for seed in range(1, 7):
        verdict = run(AFTER_ANOTHER, (fault,), seed)
        assert verdict.violation is None, "\n".join((f"seed {seed}", *verdict.lines))


def with_claims(workload: Workload, rng: Random) -> Workload:
    """Give each pod of the API server some claims."""

    def some(pod: PodPlan) -> tuple[str, ...]:
        own = f"of-{pod.name}"
        return rng.choice(((), ("shared",), (own,), ("shared", own)))

    pods = tuple(pod if pod.static else replace(pod, claims=some(pod)) for pod in workload.pods)
    return replace(workload, pods=pods)


def driver_fault(rng: Random) -> PluginFault:
    kind = rng.choice(("dead", "dies", "slow", "silent"))
    return PluginFault(round(rng.uniform(0.0, 20.0), 3), round(rng.uniform(0.5, 12.0), 3), kind)


@pytest.mark.long
@pytest.mark.share(1, test=2)
@pytest.mark.parametrize("part", range(4))
def test_a_disturbed_node_ends_with_the_claims_of_an_undisturbed_one(part: int) -> None:
    for seed in SEEDS[part::4]:
        case, rng = draw(seed), Random(f"claims {seed}")
        workload = with_claims(replace(case.workload, plugin=None), rng)
        workload = replace(workload, pods=tuple(replace(pod, devices=0, cpus=0) for pod in workload.pods))
        faults = [driver_fault(rng) for _ in range(rng.choice((0, 1, 2)))]
        verdict = check_case(Case(seed, workload, (*case.faults, *faults)))
        assert verdict.violation is None, "\n".join((f"seed {seed}", *verdict.lines))


@pytest.mark.long
@pytest.mark.share(2)
@pytest.mark.parametrize("keeps", [True, False], ids=["the runtime lists ended pods", "the runtime has lost its pods"])
def test_after_a_restart_of_the_machine_claims_are_prepared_before_their_containers_run_again(
    reached: Reached, keeps: bool
) -> None:
    pods = tuple(replace(pod, acts=()) for pod in WORKLOAD.pods[:2])
    late = PluginFault(15.0, 30.0, "dead")
    verdict = run(Workload(pods), (MachineBoots(15.0, 5.0, keeps), late), 1)
    assert verdict.violation is None, "\n".join(verdict.lines)
    assert verdict.state["claims"]["prepared"] == ["other", "own", "shared"]
    assert all(verdict.state[f"api {pod.name}"]["conditions"]["Ready"] == "True" for pod in pods)
