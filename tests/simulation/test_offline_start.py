"""A node that boots without API server runs its pods from the records soon, and is right soon after the API server's
return (`offlinePods`): all services together, in virtual seconds."""

import pytest

from tests.simulation.faults import ApiFault, MachineBoots
from tests.simulation.run import run
from tests.simulation.workload import IMAGES, Act, PodPlan, Run, Workload

PODS = 20
OFF = 20.0  # seconds at which the machine loses its power, and the API server is away
STARTED = OFF + 5.0  # the agent starts
RETURNED = OFF + 100.0  # the API server is back; an agent that has listed its pods may notice it over a minute later
RUN_WITHIN, RIGHT_WITHIN = 20.0, 10.0
VOLUMES = ("secret", "config", "claim", "token")
ACTS = ("delete",) * 3 + ("image",) * 3 + ("move",) * 3


def times(lines: tuple[str, ...], *calls: str) -> list[float]:
    """Seconds of the calls to the runtime since the start of the agent."""
    made = ((float(line.split()[1]), line.split()[2:4]) for line in lines)
    return [seconds for seconds, (who, call) in made if who == "runtime" and call in calls and seconds > STARTED]


@pytest.mark.long
def test_twenty_pods_run_within_twenty_seconds_and_are_right_within_ten() -> None:
    acts = [(Act(act, OFF + 10.0, grace=0),) for act in ACTS] + [()] * (PODS - len(ACTS))
    pods = tuple(
        PodPlan(f"p{number}", 0.0, "Always", ((Run(),),), acts=acts[number], volumes=VOLUMES) for number in range(PODS)
    )
    faults = (MachineBoots(OFF, STARTED - OFF, keeps=True), ApiFault(OFF, RETURNED - OFF, "down", 0))
    verdict = run(Workload(pods, offline=True), faults, seed=1)
    story = "\n".join(verdict.lines)
    assert verdict.violation is None, story
    started = times(verdict.lines, "StartContainer")
    assert len(started) == PODS + ACTS.count("image"), "a pod started twice\n" + story
    assert started[PODS - 1] < STARTED + RUN_WITHIN, story
    changed = [one for one in times(verdict.lines, "StartContainer", "StopContainer") if one > started[PODS - 1]]
    assert len(changed) == len(ACTS) + ACTS.count("image"), story
    assert RETURNED < min(changed) <= max(changed) < RETURNED + RIGHT_WITHIN, story
    for number in range(PODS):
        act = ACTS[number] if number < len(ACTS) else ""
        shown, running = verdict.state.get(f"api p{number}"), verdict.state.get(f"runtime p{number}")
        if act in ("delete", "move"):
            assert running is None and (act == "move") == bool(shown), story
            continue
        assert shown and running and running["running"] == ["c0"], story
        [container] = shown["containers"]
        assert container["image"] == IMAGES[act == "image"]
