"""podsync or volume is killed at each point of an allocation, beside a device plugin that is alive, gone, slow, silent
or dies in the call: each container has its own devices and CPUs in the end, and no other container is touched."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.model.frozen_copy import replace
from tests.fakes.api_store import Change
from tests.simulation.faults import ClockStep, Fault, Kill, PluginFault
from tests.simulation.node import Node
from tests.simulation.oracle import Oracle
from tests.simulation.placement import DEVICES
from tests.simulation.run import Case, check_case, clear_memory, in_memory, run
from tests.simulation.workload import GPU, PluginPlan, PodPlan, Run, Workload

WORKLOAD = Workload(  # the containers of the first pod leave the CPUs of the others
    tuple(
        PodPlan(f"p{number}", 2.0 * number, "Always", ((Run(),), (Run(),)), devices=1, cpus=number)
        for number in range(3)
    ),
    plugin=PluginPlan(prefers=True, prepares=True),
)
CALLS = ("AllocatePodDevices", "AskPreferredDevices", "SetContainerCpus")
STEPS = ("saved", "published", "calling", "acted")
POINTS = (*(f"podsync.{step}.{call}" for call in CALLS for step in STEPS), "volume.device_plugin.saved")
STATES = ("alive", "gone", "dies", "slow", "silent")  # of the device plugin
SHORT = {(f"podsync.{step}.AllocatePodDevices", "gone") for step in STEPS}  # in the short lane

Reached = dict[str, float]


@pytest.fixture(scope="module", autouse=True)
def directory() -> Iterator[None]:
    before = Path.cwd()
    in_memory("device-kills")
    yield
    os.chdir(before)
    clear_memory("device-kills")


@pytest.fixture(scope="module")
def reached(directory: None) -> Reached:
    """Point -> the seconds at which the undisturbed run comes to it, for the last time."""
    found: Reached = {}
    at_point = Node.crash_point

    def crash_point(node: Node, name: str) -> bool:
        found[name] = node.story.seconds
        return at_point(node, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "crash_point", crash_point)
        assert run(WORKLOAD, (), 1).violation is None
    return found


def plugin_faults(state: str, seconds: float) -> tuple[Fault, ...]:
    """Return the faults with which the plugin is in this state when the process is killed at `seconds`."""
    match state:
        case "alive":
            return ()
        case "gone":  # right after the kill, and until the next process has waited for it
            return (PluginFault(seconds + 0.0001, 15.0, "dead"),)
        case "dies":
            return (PluginFault(max(seconds - 1.0, 0.0), 15.0, "dies"),)
        case _:
            return (PluginFault(max(seconds - 1.0, 0.0), 20.0, state),)


def each() -> list[Any]:
    pairs = [(point, state) for point in POINTS for state in STATES]
    return [pytest.param(*pair, marks=() if pair in SHORT else (pytest.mark.long,)) for pair in pairs]


@pytest.mark.share(2, test=3)
@pytest.mark.parametrize(("point", "state"), each())
def test_no_device_and_no_cpu_is_given_twice_or_lost(reached: Reached, point: str, state: str) -> None:
    seconds = reached[point.replace("calling", "published")]
    kill = Kill(max(seconds - 0.5, 0.0), point.split(".")[0], 0, 0, point, 0.5)
    verdict = check_case(Case(1, WORKLOAD, (*plugin_faults(state, seconds), kill)))
    assert verdict.violation is None, "\n".join(verdict.lines)
    if state != "silent":
        assert any(f"at {point}" in line for line in verdict.lines), "it was never killed there"


@pytest.mark.parametrize("anew", [False, True])
def test_a_restart_of_volume_changes_nothing_that_the_node_shows_of_devices(
    monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    shown: list[tuple[str, str]] = []
    changed = Oracle.changed

    def note(oracle: Oracle, change: Change) -> None:
        status = (change.after or {}).get("status", {})
        if change.key.endswith("/nodes/node1") and GPU in status.get("capacity", {}):
            shown.append((status["capacity"][GPU], status["allocatable"][GPU]))
        changed(oracle, change)

    monkeypatch.setattr(Oracle, "changed", note)
    kills = tuple(Kill(seconds, "volume", 1, 0, "", 1.0) for seconds in (10.0, 30.0))
    workload = replace(WORKLOAD, plugin=PluginPlan(anew=anew))
    verdict = run(workload, (*kills, ClockStep(45.0, 1.0)), 1)  # which lasts longer than the Node could hold an amount
    assert verdict.violation is None, "\n".join(verdict.lines)
    assert sum("registers" in line for line in verdict.lines) == (3 if anew else 1), "\n".join(verdict.lines)
    every = str(len(DEVICES))
    assert set(shown[shown.index((every, every)) :]) == {(every, every)}
