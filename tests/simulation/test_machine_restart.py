"""The machine restarts, and the device plugin comes back later than the agent: pods with devices run again with the
same devices, and none of them is judged again (kubernetes #128043)."""

from random import Random

import pytest

from shared.model.frozen_copy import replace
from tests.simulation.faults import MachineBoots, PluginFault
from tests.simulation.run import draw, run
from tests.simulation.workload import PluginPlan, PodPlan, Run, Workload

PODS = 8
OFF = 20.0  # seconds at which the machine loses its power
DOWN = 5.0  # seconds until it runs again
LATE = 40.0  # seconds from then until the plugin runs
SEEDS = [seed for seed in range(30) if draw(seed).workload.plugin is not None]


@pytest.mark.share(4)
@pytest.mark.parametrize("keeps", [True, False], ids=["the runtime lists ended pods", "the runtime has lost its pods"])
@pytest.mark.parametrize("prepares", [False, True], ids=["", "PreStartContainer"])
def test_no_pod_fails_when_the_machine_restarts_and_the_plugin_comes_back_late(keeps: bool, prepares: bool) -> None:
    pods = tuple(
        PodPlan(f"p{number}", 0.5 * number, "Always", ((Run(),),), devices=1, static=number % 2 == 1)
        for number in range(PODS)
    )
    late = PodPlan("late", OFF + DOWN + 10.0, "Always", ((Run(),),), devices=1)  # is new when the plugin is away
    workload = Workload((*pods, late), plugin=PluginPlan(prepares=prepares))
    faults = (MachineBoots(OFF, DOWN, keeps), PluginFault(OFF, DOWN + LATE, "dead"))
    verdict = run(workload, faults, seed=1)
    story = "\n".join(verdict.lines)
    assert verdict.violation is None, story
    shown = {name: pod for name, pod in verdict.state.items() if name.startswith("api ")}
    assert len(shown) == PODS + 1, story
    for name, pod in shown.items():
        assert (pod["phase"], pod["reason"], pod["conditions"]["Ready"]) == ("Running", None, "True"), (name, story)
    allocations = [line.split("allocates ")[1] for line in verdict.lines if "plugin     allocates" in line]
    assert len(allocations) == len(set(allocations)) == PODS + 1, "each pod was given its device once"


@pytest.mark.long
@pytest.mark.share(1, test=2)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_runs_when_the_power_fails_no_device_is_with_two_pods_or_lost(seed: int) -> None:
    case, chance = draw(seed), Random(f"power {seed}")
    # The containers of the others are not started again.
    pods = tuple(
        replace(pod, policy="OnFailure" if pod.policy == "Never" else pod.policy) for pod in case.workload.pods
    )
    at, down = round(chance.uniform(1.0, 20.0), 3), round(chance.uniform(1.0, 8.0), 3)
    plugin_faults = tuple(fault for fault in case.faults if isinstance(fault, PluginFault))
    late = PluginFault(at, down + round(chance.uniform(0.0, LATE), 3), "dead")
    boots = MachineBoots(at, down, keeps=chance.random() < 0.5)
    verdict = run(replace(case.workload, pods=pods), (*plugin_faults, boots, late), seed)
    assert verdict.violation is None, "\n".join(verdict.lines)
    reasons = {pod["reason"] for name, pod in verdict.state.items() if name.startswith("api ")}
    assert reasons <= {None, "DeadlineExceeded"}, "\n".join(verdict.lines)
