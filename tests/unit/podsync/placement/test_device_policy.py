"""Which devices a container gets, and from which NUMA nodes they could come (node.md 4.15)."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.messages.device_plugins import Device, DeviceResource
from services.podsync.core.placement.device_policy import DevicePolicy, PreferenceQuestion, reusable_devices
from services.podsync.core.placement.hint import Hint, PlacementError
from tests.unit.podsync.placement import device_oracle

GPU, NIC = "example.com/gpu", "example.com/nic"


def device(name: str, *nodes: int, healthy: bool = True) -> Device:
    return Device(id=name, healthy=healthy, nodes=nodes)


def resource(*devices: Device, name: str = GPU, **details: Any) -> DeviceResource:
    return DeviceResource(**{"resource": name, "connected": True, "since": 1.0, "devices": devices, **details})


def policy(*devices: Device, nodes: Iterable[int] = (0, 1), **details: Any) -> DevicePolicy:
    return DevicePolicy(tuple(nodes), {GPU: resource(*devices, **details)})


def container(name: str = "c", **limits: str) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {f"example.com/{key}": value for key, value in limits.items()}}}


def pod(*containers: Any, init: tuple[Any, ...] = ()) -> dict[str, Any]:
    return {"spec": {"initContainers": list(init), "containers": list(containers)}}


def ids(*names: str) -> frozenset[str]:
    return frozenset(names)


FOUR = (device("a0", 0), device("a1", 0), device("b0", 1), device("b1", 1))


def test_only_resources_of_device_plugins_are_requested() -> None:
    found = policy(*FOUR).requested(container(gpu="2", other="1", nic="0"), {})
    assert found == {GPU: 2}


def test_a_dropped_resource_is_one_of_device_plugins_only_while_a_pod_has_a_device_of_it() -> None:
    dropped = policy(dropped=True, connected=False)
    assert dropped.requested(container(gpu="2"), {GPU: ids("a")}) == {GPU: 2}
    assert dropped.requested(container(gpu="2"), {}) == {}


def test_hints_are_the_sets_of_nodes_that_have_enough_and_the_smallest_possible_ones_are_preferred() -> None:
    one, two = frozenset({0}), frozenset({1})
    found = policy(*FOUR).hints(pod(), container(gpu="2"), {GPU: ids("b0")}, {})
    assert found == {GPU: (Hint(one, True), Hint(one | two, False))}
    assert policy(*FOUR).hints(pod(), container(gpu="3"), {}, {}) == {GPU: (Hint(one | two, True),)}


def test_a_resource_without_numa_nodes_has_no_preference_and_one_without_enough_devices_has_no_hint() -> None:
    assert policy(device("a"), device("b")).hints(pod(), container(gpu="1"), {}, {}) == {GPU: None}
    assert policy(*FOUR).hints(pod(), container(gpu="4"), {GPU: ids("a0")}, {}) == {GPU: ()}
    assert policy(device("a", 0, healthy=False)).hints(pod(), container(gpu="1"), {}, {}) == {GPU: ()}


def test_hints_of_a_pod_are_for_all_that_run_at_once() -> None:
    init, one = container("i", gpu="3"), container("a", gpu="1")
    found = policy(*FOUR).pod_hints(pod(one, container("b", gpu="1"), init=(init,)), {})
    assert found == {GPU: (Hint(frozenset({0, 1}), True),)}


def test_devices_near_the_affinity_go_first_then_those_near_other_nodes_then_those_near_none() -> None:
    devices = policy(*FOUR, device("0"))
    assert devices.choose(GPU, 1, frozenset({1}), {}, ids()) == ids("b0")
    assert devices.choose(GPU, 2, frozenset({1}), {}, ids()) == ids("b0", "b1")
    assert devices.choose(GPU, 3, frozenset({1}), {}, ids()) == ids("b0", "b1", "a0")
    assert devices.choose(GPU, 5, frozenset({1}), {}, ids()) == ids("b0", "b1", "a0", "a1", "0")
    assert devices.choose(GPU, 1, None, {}, ids()) == ids("0")


def test_devices_that_init_containers_leave_go_first() -> None:
    assert policy(*FOUR).choose(GPU, 2, frozenset({0}), {GPU: ids("b1")}, ids("b1")) == ids("b1", "a0")


def test_the_plugin_is_asked_among_the_aligned_devices_where_there_are_more_than_needed() -> None:
    devices = policy(*FOUR, device("a2", 0), preferred_allocation=True)
    question = devices.choose(GPU, 3, frozenset({0}), {GPU: ids("b1")}, ids("b1"))
    assert question == PreferenceQuestion(GPU, ("a0", "a1", "a2", "b1"), ("b1",), 3)
    answered = devices.choose(GPU, 3, frozenset({0}), {GPU: ids("b1")}, ids("b1"), ids("a2", "b0", "no such device"))
    assert answered == ids("b1", "a2", "a0")


def test_the_plugin_is_asked_among_all_devices_where_the_aligned_ones_are_not_enough() -> None:
    devices = policy(*FOUR, device("x"), preferred_allocation=True)
    question = devices.choose(GPU, 3, frozenset({1}), {GPU: ids("a1")}, ids())
    assert question == PreferenceQuestion(GPU, ("a0", "b0", "b1", "x"), ("b0", "b1"), 3)
    assert devices.choose(GPU, 3, frozenset({1}), {GPU: ids("a1")}, ids(), ids("x", "a1")) == ids("b0", "b1", "x")
    assert devices.choose(GPU, 3, frozenset({1}), {GPU: ids("a1")}, ids(), ids()) == ids("b0", "b1", "a0")


def test_the_plugin_is_not_asked_where_nothing_is_left_to_choose() -> None:
    devices = policy(*FOUR, preferred_allocation=True)
    assert devices.choose(GPU, 2, frozenset({1}), {}, ids()) == ids("b0", "b1")
    assert devices.choose(GPU, 1, frozenset({1}), {GPU: ids("a0")}, ids("a0")) == ids("a0")


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (DevicePolicy((0,), {}), "cannot allocate unregistered device example.com/gpu"),
        (policy(dropped=True, connected=False), "cannot allocate unregistered device example.com/gpu"),
        (policy(), "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"),
        (
            policy(device("a", healthy=False)),
            "no healthy devices present; cannot allocate unhealthy devices example.com/gpu",
        ),
        (
            policy(device("a"), device("b", healthy=False)),
            "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1",
        ),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_with_the_text_of_the_kubelet(
    devices: DevicePolicy, text: str
) -> None:
    with pytest.raises(PlacementError) as refused:
        devices.choose(GPU, 2, None, {}, ids())
    assert (str(refused.value), refused.value.reason) == (text, "UnexpectedAdmissionError")


def test_devices_of_plain_init_containers_are_left_until_a_later_container_takes_them_over() -> None:
    init = (container("i"), {**container("s"), "restartPolicy": "Always"}, container("j"))
    described = pod(container("a"), container("b"), init=init)
    own = {"i": {GPU: ids("1", "2")}, "s": {GPU: ids("2")}, "j": {GPU: ids("1", "3")}, "a": {GPU: ids("3")}}
    assert reusable_devices(described, GPU, own) == ids("1")
    assert reusable_devices(described, NIC, own) == ids()


_DEVICES = st.lists(
    st.tuples(st.booleans(), st.frozensets(st.integers(0, 3), max_size=2), st.sampled_from(["free", "taken", "left"])),
    min_size=1,
    max_size=7,
)


@given(listed=_DEVICES, count=st.integers(1, 5), machine=st.integers(1, 4))
def test_hints_are_those_of_the_oracle(listed: list[Any], count: int, machine: int) -> None:
    devices = tuple(device(str(number), *sorted(near), healthy=up) for number, (up, near, _) in enumerate(listed))
    states = {str(number): state for number, (_, _, state) in enumerate(listed)}
    left = frozenset(name for name, state in states.items() if state == "left")
    taken = left | {name for name, state in states.items() if state == "taken"}
    available = frozenset(each.id for each in devices if each.healthy) - taken
    own = {"i": {GPU: left}}
    described = pod(container("c", gpu=str(count)), init=(container("i"),))
    found = policy(*devices, nodes=range(machine)).hints(
        described, described["spec"]["containers"][0], {GPU: taken}, own
    )[GPU]
    expected = device_oracle.hints(range(machine), devices, available, left, count)
    assert (None if found is None else {(hint.nodes, hint.preferred) for hint in found}) == expected


@pytest.mark.long
@given(
    listed=_DEVICES,
    count=st.integers(1, 5),
    affinity=st.one_of(st.none(), st.frozensets(st.integers(0, 3), min_size=1, max_size=3)),
    preferred=st.frozensets(st.sampled_from([*map(str, range(7)), "no such device"]), max_size=4),
)
def test_no_choice_is_better_than_the_one_that_is_made(
    listed: list[Any], count: int, affinity: frozenset[int] | None, preferred: frozenset[str]
) -> None:
    devices = tuple(device(str(number), *sorted(near), healthy=up) for number, (up, near, _) in enumerate(listed))
    states = {str(number): state for number, (_, _, state) in enumerate(listed)}
    left = frozenset(name for name, state in states.items() if state == "left")
    taken = left | {name for name, state in states.items() if state == "taken"}
    available = frozenset(each.id for each in devices if each.healthy) - taken
    machine = policy(*devices, nodes=range(4), preferred_allocation=True)
    try:
        chosen = machine.choose(GPU, count, affinity, {GPU: taken}, left)
        if isinstance(chosen, PreferenceQuestion):
            assert set(chosen.must_include) <= set(chosen.available) <= available | left
            assert len(chosen.must_include) < chosen.size == count
            chosen = machine.choose(GPU, count, affinity, {GPU: taken}, left, preferred)
    except PlacementError:
        assert len(available | left) < count or not any(each.healthy for each in devices)
        return
    assert isinstance(chosen, frozenset) and chosen <= available | left and len(chosen) == count
    best = device_oracle.best_rank(devices, available, left, affinity, preferred, count)
    assert device_oracle.rank(chosen, devices, left, affinity, preferred) == best


_STEPS = st.lists(st.tuples(st.sampled_from(["admit", "remove", "health"]), st.integers(0, 99)), max_size=40)


@given(steps=_STEPS)
def test_no_device_belongs_to_two_pods_in_any_order_of_pods_that_come_and_go(steps: list[tuple[str, int]]) -> None:
    names = [f"{number}" for number in range(8)]
    unhealthy: set[str] = set()
    pods: dict[int, frozenset[str]] = {}
    for step, number in steps:
        taken = frozenset().union(*pods.values())
        match step:
            case "admit" if number not in pods:
                listed = [device(name, int(name) % 2, healthy=name not in unhealthy) for name in names]
                count = number % 4 + 1
                fits = len(set(names) - unhealthy - taken) >= count
                try:
                    chosen = policy(*listed).choose(GPU, count, frozenset({number % 2}), {GPU: taken}, ids())
                except PlacementError:
                    assert not fits
                    continue
                assert fits and isinstance(chosen, frozenset)
                assert not chosen & (taken | unhealthy)
                pods[number] = chosen
            case "remove":
                pods.pop(number, None)
            case "health":
                unhealthy ^= {names[number % 8]}
    assert sum(map(len, pods.values())) == len(frozenset().union(*pods.values()))
