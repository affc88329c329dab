"""Which resizes the node allocates, worked out by hand from pods.md 5.6: the statuses, and what is done later.

The node has 1 CPU and 1 GiB for pods. Amounts are written as in `resize_table`.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.pod.gated_fields import POD_LEVEL_RESIZE
from tests.unit.podsync.play import Play, a_container, a_pod
from tests.unit.podsync.resize_table import MI, Row, amounts, check_resized, check_shown, condition, listed

ALLOCATABLE = {"cpu": "1", "memory": "1Gi", "pods": "10"}
EVEN = "100m/64Mi 100m/64Mi"
NOTHING: dict[str, Any] = {"pod": (0, None, None), "containers": {}}


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A resize that is not done at first. `other`: the amounts of the pod beside it; `facts`: more of the machine."""

    row: Row
    message: str
    other: str = "-/- -/-"
    facts: dict[str, Any] = field(default_factory=dict)


def infeasible(name: str, before: dict[str, str], after: dict[str, str], message: str, **facts: Any) -> Refused:
    return Refused(row=Row(name=name, before=before, after=after, **NOTHING), message=message, facts=facts)


INFEASIBLE = [
    infeasible(
        "more CPU than the node has",
        {"a": "100m/- -/-"},
        {"a": "1200m/- -/-"},
        "Node didn't have enough capacity: cpu, requested: 1200, capacity: 1000",
    ),
    infeasible(
        "more memory than the node has",
        {"a": "-/64Mi -/-"},
        {"a": "-/2Gi -/-"},
        "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824",
    ),
    infeasible(
        "of both resources memory is named",
        {"a": EVEN},
        {"a": "1100m/2Gi 1100m/2Gi"},
        "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824",
    ),
    infeasible(
        "more than the node has for two containers together",
        {"a": "100m/- -/-", "b": "500m/- -/-"},
        {"a": "600m/- -/-", "b": "500m/- -/-"},
        "Node didn't have enough capacity: cpu, requested: 1100, capacity: 1000",
    ),
    infeasible(
        "more than the node has with the sidecar",
        {"s": "100m/- -/-", "a": "500m/- -/-"},
        {"s": "600m/- -/-", "a": "500m/- -/-"},
        "Node didn't have enough capacity: cpu, requested: 1100, capacity: 1000",
    ),
    infeasible(
        "more than the node has for the pod itself",
        {"pod": "200m/- -/-", "a": "100m/- -/-"},
        {"pod": "1300m/- -/-", "a": "100m/- -/-"},
        "Node didn't have enough capacity: cpu, requested: 1300, capacity: 1000",
    ),
    infeasible(
        "what one container has to give is not taken either",
        {"a": "400m/- 400m/-", "b": "100m/- 100m/-"},
        {"a": "100m/- 100m/-", "b": "1100m/- 1100m/-"},
        "Node didn't have enough capacity: cpu, requested: 1200, capacity: 1000",
    ),
    infeasible(
        "resources of the pod where the gate is off",
        {"pod": "200m/- -/-", "a": "100m/- -/-"},
        {"pod": "300m/- -/-", "a": "100m/- -/-"},
        "InPlacePodLevelResourcesVerticalScaling is disabled",
        gates_off=frozenset({POD_LEVEL_RESIZE}),
    ),
    infeasible(
        "the memory request of a container that may swap",
        {"a": "100m/64Mi -/128Mi"},
        {"a": "100m/96Mi -/128Mi"},
        "In-place resize of containers with swap is not supported.",
        limited_swap=True,
    ),
]

DEFERRED = [
    Refused(
        row=Row(
            name="CPU",
            before={"a": "100m/- 200m/-"},
            after={"a": "300m/- 400m/-"},
            pod=(307, 40_000, None),
            containers={"a": (307, 40_000, 0)},
        ),
        other="800m/- -/-",
        message="Node didn't have enough resource: cpu, requested: 300, used: 800, capacity: 1000",
    ),
    Refused(
        row=Row(
            name="memory",
            before={"a": "100m/256Mi 100m/256Mi"},
            after={"a": "100m/512Mi 100m/512Mi"},
            pod=(102, 10_000, 512 * MI),
            containers={"a": (102, 10_000, 512 * MI)},
        ),
        other="-/768Mi -/-",
        message="Node didn't have enough resource: memory, requested: 536870912, used: 805306368, capacity: 1073741824",
    ),
    Refused(
        row=Row(
            name="more CPU and less memory: both wait",
            before={"a": "100m/128Mi 100m/128Mi"},
            after={"a": "300m/64Mi 300m/64Mi"},
            pod=(307, 30_000, 64 * MI),
            containers={"a": (307, 30_000, 64 * MI)},
        ),
        other="800m/- -/-",
        message="Node didn't have enough resource: cpu, requested: 300, used: 800, capacity: 1000",
    ),
    Refused(
        row=Row(
            name="one of two containers",
            before={"a": EVEN, "b": EVEN},
            after={"a": "300m/64Mi 300m/64Mi", "b": EVEN},
            pod=(409, 40_000, 128 * MI),
            containers={"a": (307, 30_000, 64 * MI), "b": (102, 10_000, 64 * MI)},
        ),
        other="700m/- -/-",
        message="Node didn't have enough resource: cpu, requested: 400, used: 700, capacity: 1000",
    ),
    Refused(
        row=Row(
            name="a sidecar",
            before={"s": "100m/- 100m/-", "a": "100m/- 100m/-"},
            after={"s": "200m/- 200m/-", "a": "100m/- 100m/-"},
            pod=(307, 30_000, None),
            containers={"s": (204, 20_000, 0), "a": (102, 10_000, 0)},
        ),
        other="800m/- -/-",
        message="Node didn't have enough resource: cpu, requested: 300, used: 800, capacity: 1000",
    ),
    Refused(
        row=Row(
            name="the pod itself",
            before={"pod": EVEN, "a": "-/- -/-"},
            after={"pod": "200m/64Mi 200m/64Mi", "a": "-/- -/-"},
            pod=(204, 20_000, 64 * MI),
            containers={"a": (204, 20_000, 64 * MI)},
        ),
        other="900m/- -/-",
        message="Node didn't have enough resource: cpu, requested: 200, used: 900, capacity: 1000",
    ),
    Refused(
        row=Row(
            name="a container is not restarted before there is room",
            before={"a": "100m/- 100m/-"},
            after={"a": "300m/- 300m/-"},
            restart={"a": "cpu"},
            restarted=("a",),
            pod=(307, 30_000, None),
            containers={"a": (307, 30_000, 0)},
        ),
        other="800m/- -/-",
        message="Node didn't have enough resource: cpu, requested: 300, used: 800, capacity: 1000",
    ),
]


def refused(case: Refused, reason: str) -> Play:
    """The play after the resize was refused: nothing has changed but the condition, and there is one Event."""
    play = Play(source="api", facts=MachineFacts(allocatable=ALLOCATABLE, **case.facts))
    other = a_pod("u0", "other", containers=[a_container("c", resources=amounts(case.other))])
    play.want(other)
    for generation in (1, 2):
        play.want(listed(case.row, generation))
    found = condition(play, "PodResizePending")
    assert (found["reason"], found["message"], found["observedGeneration"]) == (reason, case.message, 2)
    assert play.writes == [] and play.stopped == []
    check_shown(play, case.row.before)
    assert [e.split(":")[0] for e in play.events if " Resize" in e] == [f"Warning Resize{reason}"]
    return play


@pytest.mark.parametrize("case", INFEASIBLE, ids=lambda case: case.row.name)
def test_an_infeasible_resize_changes_nothing_and_is_not_tried_again(case: Refused) -> None:
    play = refused(case, "Infeasible")
    play.drop("u0")
    play.later(400)
    assert condition(play, "PodResizePending")["reason"] == "Infeasible" and play.writes == []
    play.want(listed(case.row, 3))
    assert condition(play, "PodResizePending") == {}
    check_shown(play, case.row.before)


@pytest.mark.long
@pytest.mark.parametrize("case", DEFERRED, ids=lambda case: case.row.name)
def test_a_deferred_resize_is_done_when_there_is_room(case: Refused) -> None:
    play = refused(case, "Deferred")
    play.drop("u0")
    check_resized(play, case.row)


@pytest.mark.long
@pytest.mark.parametrize("case", DEFERRED, ids=lambda case: case.row.name)
def test_a_deferred_resize_that_is_taken_back_changes_nothing(case: Refused) -> None:
    play = refused(case, "Deferred")
    play.want(listed(case.row, 3))
    assert condition(play, "PodResizePending") == {}
    play.drop("u0")
    assert play.writes == []
    check_shown(play, case.row.before)


@pytest.mark.parametrize("declares", [True, False])
def test_a_resize_that_needs_a_feature_the_node_does_not_declare_is_an_event_of_its_own(declares: bool) -> None:
    row = next(case.row for case in INFEASIBLE if "gate is off" in case.row.name)
    facts = MachineFacts(allocatable=ALLOCATABLE, gates_off=frozenset({POD_LEVEL_RESIZE}), declares_features=declares)
    play = Play(source="api", facts=facts)
    for generation in (1, 2):
        play.want(listed(row, generation))
    text = "Pod requires node features that are not available: InPlacePodLevelResourcesVerticalScaling"
    found = [event for event in play.events if "DeclaredFeatures" in event]
    assert found == [f"Warning FailedNodeDeclaredFeaturesCheck: {text}"] * declares


def test_a_container_that_is_restarted_for_its_memory_may_swap() -> None:
    row = Row(
        name="",
        before={"a": "100m/64Mi -/128Mi"},
        after={"a": "100m/96Mi -/128Mi"},
        restart={"a": "memory"},
        restarted=("a",),
        pod=(102, None, 128 * MI),
        containers={"a": (102, 0, 128 * MI)},
    )
    play = Play(source="api", facts=MachineFacts(allocatable=ALLOCATABLE, limited_swap=True))
    for generation in (1, 2):
        play.want(listed(row, generation))
    check_resized(play, row)
