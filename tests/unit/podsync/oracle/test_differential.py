"""podsync's decisions about random pods equal those of an oracle that is written from the reference.

`make night` draws with another seed, which a failure names: NIGHT=1 FIRST_SEED=<seed>.
"""

import os
import random
from fractions import Fraction
from typing import Any

import pytest

from services.podsync.core.status.container_status import ContainerStatuses, container_statuses
from services.podsync.core.status.phase import pod_phase
from services.podsync.core.sync.kills_and_starts import compute_pod_actions
from shared.model.runtime import ContainerState
from shared.podspec.qos import compute_qos_class
from shared.podspec.resources import pod_limits, pod_requests
from tests.unit.examples import examples
from tests.unit.podsync.oracle import pods_oracle as oracle
from tests.unit.podsync.oracle import resources_oracle
from tests.unit.podsync.oracle.random_pods import RUNTIME, Drawn, draw_pod

Json = dict[str, Any]
NIGHT = bool(os.environ.get("NIGHT"))
FIRST = int(os.environ.get("FIRST_SEED", "0"))
PODS = 20_000  # `make test` draws a third of them
_PARTS = 10
_LONG = pytest.mark.long
PARTS = [part if part == 0 else pytest.param(part, marks=_LONG) for part in range(_PARTS * (50 if NIGHT else 1))]


def drawn_pods(part: int) -> "list[tuple[int, Drawn]]":
    first = FIRST + part * PODS // _PARTS
    seeds = range(first, first + examples(PODS // _PARTS))
    return [(seed, draw_pod(random.Random(seed))) for seed in seeds]


@pytest.mark.share(1, test=3)
@pytest.mark.parametrize("part", PARTS)
def test_actions_statuses_phase_class_and_resources_are_those_of_the_reference(part: int) -> None:
    for seed, drawn in drawn_pods(part):
        assert_same_actions(seed, drawn)
        assert_same_status(seed, drawn)
        assert compute_qos_class(drawn.pod) == resources_oracle.compute_qos(drawn.pod), seed
        for kind, total in (("requests", pod_requests), ("limits", pod_limits)):
            expected = resources_oracle.total_resources(drawn.pod, kind)
            assert {name: Fraction(amount.nanos, 10**9) for name, amount in total(drawn.pod).items()} == expected, seed


def assert_same_actions(seed: int, drawn: Drawn) -> None:
    got, expected = compute_pod_actions(drawn.record()), oracle.decide_actions(drawn)
    if drawn.sandboxes:  # else there is nothing to kill
        assert got.kill_pod == expected.kill_pod, seed
    assert (got.create_sandbox, list(got.start)) == (expected.create_sandbox, expected.start), seed
    if got.create_sandbox:
        assert got.sandbox_attempt == expected.attempt, seed
    kills = {kill.instance.id: kill.message for kill in got.kill}
    assert kills.keys() == expected.kill.keys(), seed
    for container_id, message in expected.kill.items():
        assert kills[container_id].startswith(message), seed


def assert_same_status(seed: int, drawn: Drawn) -> None:
    record = drawn.record()
    statuses = container_statuses(record, RUNTIME)
    shown: Json = {}
    for status, spec, kind in _in_kinds(drawn, statuses):
        expected = oracle.show_container(drawn, spec, kind)
        [(state, value)] = status["state"].items()
        got = {
            "state": (state, value.get("reason", ""), value.get("exitCode")),
            "lastState": _end(status["lastState"].get("terminated")),
            "restartCount": status["restartCount"],
        }
        assert got == expected, (seed, spec["name"])
        shown[spec["name"]] = {**expected, "started": status.get("started")}
    if not _restart_under_way(drawn):
        assert pod_phase(record, statuses, over=False) == oracle.decide_phase(drawn, shown), seed


def _restart_under_way(drawn: Drawn) -> bool:
    """Return whether the newest instance of a container is made and not started.

    Where an earlier one has ended, such a pod is shown as before the end on purpose: a kubelet reads the runtime only
    after the start.
    """
    specs = [*drawn.pod["spec"].get("initContainers", []), *drawn.pod["spec"]["containers"]]
    newest = {spec["name"]: [i for i in drawn.instances if i.name == spec["name"]][:1] for spec in specs}
    return any(found and found[0].state is ContainerState.CREATED for found in newest.values())


def _in_kinds(drawn: Drawn, statuses: ContainerStatuses) -> list[tuple[Json, Json, str]]:
    spec = drawn.pod["spec"]
    regular = {status["name"]: status for status in statuses.regular}
    init = {status["name"]: status for status in statuses.init}
    kinds = [(regular[one["name"]], one, "regular") for one in spec["containers"]]
    for one in spec.get("initContainers", []):
        kinds.append((init[one["name"]], one, "sidecar" if one.get("restartPolicy") == "Always" else "init"))
    return kinds


def _end(terminated: Json | None) -> tuple[str, int] | None:
    return None if terminated is None else (terminated["reason"], terminated["exitCode"])
