"""podsync or volume is killed at each point of an allocation, beside a device plugin that is alive, gone, slow, silent
or dies in the call: each container has its own devices and CPUs in the end, and no other container is touched."""

import pytest

from shared.model.frozen_copy import replace
from tests.fakes.api_store import Change
from tests.simulation.faults import ClockStep, Kill
from tests.simulation.oracle import Oracle
from tests.simulation.placement import DEVICES
from tests.simulation.points import each, moments, plugin_faults
from tests.simulation.run import Case, check_case, run
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
SHORT = {(f"podsync.{step}.AllocatePodDevices", "gone") for step in STEPS}  # in the short lane


@pytest.fixture(scope="module")
def reached() -> dict[str, float]:
    """Return for each crash point the seconds at which the undisturbed run comes to it for the last time."""
    return {point: seconds[-1] for point, seconds in moments(WORKLOAD).items()}


@pytest.mark.share(2, test=3)
@pytest.mark.parametrize(("point", "state"), each(POINTS, SHORT))
def test_no_device_and_no_cpu_is_given_twice_or_lost(reached: dict[str, float], point: str, state: str) -> None:
    seconds = reached[point.replace("calling", "published")]
    kill = Kill(max(seconds - 0.5, 0.0), point.split(".")[0], 0, 0, point, 0.5)
    verdict = check_case(Case(1, WORKLOAD, (*plugin_faults(state, seconds, 20.0), kill)))
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
