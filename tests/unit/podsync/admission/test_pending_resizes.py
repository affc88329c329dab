"""What it costs to decide the resizes that wait, and what of the pod itself counts when its own is decided."""

import pytest

from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.pod.allocation import allocation_of
from services.podsync.core.pod.events import Event, NodeChanged, NodePressureChanged
from shared.model.quantity import Quantity, parse_quantity
from shared.podspec import resources
from tests.unit.podsync.play import Play, a_container, a_pod
from tests.unit.podsync.pod.test_resize import LARGE, SMALL, condition, sized

PRESSED = NodePressureChanged(conditions=("MemoryPressure",))


def crowded(count: int) -> Play:
    """A full node on which the resizes of all pods are deferred."""
    play = Play(source="api", facts=MachineFacts(allocatable={"cpu": f"{count}00m", "pods": "500"}))
    for resources_listed, generation in ((SMALL, 1), (LARGE, 2)):
        for number in range(count):
            play.want(sized(resources_listed, generation, uid=f"u{number}"))
    assert all(condition(play, uid=f"u{number}")["reason"] == "Deferred" for number in range(count))
    return play


def quantities_read(play: Play, event: Event) -> int:
    read = 0

    def counted(value: object) -> Quantity:
        nonlocal read
        read += 1
        return parse_quantity(value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "parse_quantity", counted)
        play.core.node_state.take_in(event, play.wall)
    return read


@pytest.mark.long
@pytest.mark.parametrize("event", [PRESSED, NodeChanged(node=None)], ids=["pressure", "node"])
def test_deferred_resizes_are_decided_again_with_work_in_proportion_to_the_pods(event: Event) -> None:
    few, many = (quantities_read(crowded(count), event) for count in (6, 24))
    assert 0 < many <= 4.5 * few


def test_a_reading_of_the_node_with_the_same_pressure_decides_nothing() -> None:
    play = crowded(6)
    assert quantities_read(play, PRESSED) > 0
    assert quantities_read(play, PRESSED) == 0


def test_a_resized_pod_does_not_collide_with_its_own_host_port() -> None:
    play = Play(source="api", facts=MachineFacts(allocatable={"cpu": "1", "pods": "1"}))
    ports = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    for listed, generation in ((SMALL, 1), (LARGE, 2)):
        pod = a_pod(containers=[a_container("c", resources=listed, ports=ports)])
        pod["metadata"]["generation"] = generation
        play.want(pod)
    assert play.core.tracked["u1"].saved.pending_resize is None
    assert play.resources["c002"]["cpu_quota"] == 40_000


@pytest.mark.parametrize(("gate", "owners"), [(True, ["a"]), (False, ["a"]), (True, [])])
def test_a_node_on_which_resizes_preempt_none_defers_that_of_a_critical_pod(gate: bool, owners: list[str]) -> None:
    """A field of 1.37, Node spec.podPreemptionPolicy.disableResizePreemption: who has disabled it, none = nobody. A pod
    that comes still preempts."""
    off = frozenset() if gate else frozenset({"InPlacePodVerticalScalingSchedulerPreemption"})
    play = Play(source="api", facts=MachineFacts(allocatable={"cpu": "1", "pods": "10"}, gates_off=off))
    node = {"spec": {"podPreemptionPolicy": {"disableResizePreemption": owners}}}
    play.handle(NodeChanged(node=node))
    play.want(sized({"requests": {"cpu": "600m"}}, uid="u0"))
    play.want(sized({"requests": {"cpu": "100m"}}, priority=2_000_000_000))
    play.want(sized({"requests": {"cpu": "800m"}}, 2, priority=2_000_000_000))
    preempted = [event for event in play.events if "Preempting" in event]
    if gate and owners:
        shown = condition(play)
        assert (shown["reason"], preempted) == ("Deferred", []) and play.running("u0")
        assert shown["message"].startswith("Node didn't have enough resource: cpu")
        play.want(sized({"requests": {"cpu": "850m"}}, uid="u2", priority=2_000_000_000))
        assert [event for event in play.events if "Preempting" in event]
    else:
        assert preempted and play.running("u0") == []


def test_a_pod_that_is_preempted_for_a_resize_ends_though_its_own_resize_is_decided_next() -> None:
    play = Play(source="api", facts=MachineFacts(allocatable={"cpu": "1", "pods": "10"}))
    play.want(sized({"requests": {"cpu": "400m"}}, uid="u0"))
    play.want(sized({"requests": {"cpu": "100m"}}, priority=2_000_000_000))
    play.want(sized({"requests": {"cpu": "950m"}}, 2, uid="u0"))
    assert condition(play, uid="u0")["reason"] == "Deferred"
    play.want(sized({"requests": {"cpu": "800m"}}, 2, priority=2_000_000_000))
    assert [event for event in play.events if "Preempting" in event] and play.running("u0") == []
    assert play.core.tracked["u1"].saved.allocation == allocation_of(play.wanted["u1"])
