"""What is left of the grace while containers are stopped, what is done of preStop hooks, and the end of sandboxes."""

from typing import Any

import pytest

from services.podsync.core.pod.instructions import ContainerStop
from services.podsync.core.sync.grace import (
    PreStop,
    may_stop_sandboxes,
    pre_stop_of,
    remaining_grace,
    sleep_left,
    sleep_seconds,
    stop_timeout,
)


def a_stop(**fields: Any) -> ContainerStop:
    return ContainerStop(container="c", container_id="c1", **{"grace_seconds": 30, **fields})


@pytest.mark.parametrize(
    ("grace", "waits", "timeout"),
    [
        pytest.param(30, (), 30, id="the whole grace without a hook"),
        pytest.param(30, (4.0,), 26, id="a hook takes from it"),
        pytest.param(30, (4.9, 5.9), 21, id="of each wait only whole seconds count"),
        pytest.param(30, (29.5,), 2, id="two seconds at least"),
        pytest.param(30, (30.2, 0.0), 2, id="two seconds after the grace, too"),
        pytest.param(0, (), 2, id="two seconds without grace"),
    ],
)
def test_a_sidecar_gets_what_its_hook_and_the_containers_before_it_leave_of_the_grace(
    grace: int, waits: tuple[float, ...], timeout: int
) -> None:
    for waited in waits:
        grace = remaining_grace(grace, waited)
    assert stop_timeout(grace) == timeout


@pytest.mark.parametrize(
    ("stop", "what"),
    [
        (a_stop(), PreStop.NOTHING),
        (a_stop(pre_stop=True), PreStop.RUN),
        (a_stop(pre_stop=True, grace_seconds=0), PreStop.NOTHING),
        (a_stop(pre_stop=True, hook_spent=0), PreStop.SLEEP_ON),
        (a_stop(pre_stop=True, hook_spent=7), PreStop.SLEEP_ON),
    ],
    ids=["no hook", "a hook", "no time for it", "begun just before", "begun before"],
)
def test_a_hook_runs_once(stop: ContainerStop, what: PreStop) -> None:
    assert pre_stop_of(stop) is what


@pytest.mark.parametrize(
    ("hook", "left"),
    [({"sleep": {"seconds": 10}}, 3), ({"sleep": {"seconds": 5}}, -2), ({"exec": {"command": ["sync"]}}, -7)],
    ids=["a sleep", "a sleep that is over", "a command"],
)
def test_only_a_sleep_goes_on_after_a_restart_of_podsync(hook: dict[str, Any], left: int) -> None:
    container = {"name": "c", "lifecycle": {"preStop": hook}}
    assert sleep_left(container, a_stop(pre_stop=True, hook_spent=7)) == left
    assert sleep_seconds(container, "postStart") == 0


@pytest.mark.parametrize(
    ("graces", "failed", "may"),
    [((30, 2), False, True), ((30, 2), True, False), ((2, 2), True, True), ((), False, True)],
    ids=["all have stopped", "one has time left", "none has time left", "nothing ran"],
)
def test_a_sandbox_stays_while_a_container_in_it_has_time_left(
    graces: tuple[int, ...], failed: bool, may: bool
) -> None:
    assert may_stop_sandboxes([a_stop(grace_seconds=grace) for grace in graces], failed=failed) is may
