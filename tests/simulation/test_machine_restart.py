"""kubernetes #128043 with the restart of the machine: pods with devices run again although their plugin comes back
later than the agent, and none of them is judged again."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.faults import MachineBoots, PluginFault
from tests.simulation.run import in_memory, run
from tests.simulation.workload import PluginPlan, PodPlan, Run, Workload

PODS = 8
OFF = 20.0  # seconds at which the machine loses its power
DOWN = 5.0  # seconds until it runs again
LATE = 40.0  # seconds from then until the plugin runs


@pytest.fixture(autouse=True)
def directory() -> Iterator[None]:
    before = Path.cwd()
    in_memory("machine-restart")
    yield
    os.chdir(before)


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
