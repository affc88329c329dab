"""Thresholds over time: when one is met, which conditions follow, and when it is acted on (node.md 5.2, 5.3)."""

from typing import Any

import pytest

from bus.messages.usage import CgroupUsage, FilesystemUsage, NodeUsage, SystemContainerUsage
from services.podsync.core.eviction.cycle import CycleResult, CycleState, evaluate
from services.podsync.core.eviction.pressure_conditions import (
    TEXTS,
    node_pressure,
    read_transitions,
    transitions_of,
)
from services.podsync.core.eviction.signals import Layout, layout_of, readings
from services.podsync.core.eviction.thresholds import EvictionConfiguration, Threshold, thresholds_of
from shared.config.field_table import EVICTION_HARD
from shared.model.conditions import PRESSURE_CONDITIONS
from shared.model.frozen_copy import replace

MIB = 1 << 20
TRANSITION = 300.0


def configured(**keys: Any) -> EvictionConfiguration:
    defaults: dict[str, Any] = {"hard": {}, "soft": {}, "soft_grace": {}, "minimum_reclaim": {}, "enforce_pods": False}
    return EvictionConfiguration(**defaults | keys)


def node(at: float = 0.0, **facts: int) -> NodeUsage:
    """A node with room everywhere, but for these: memory, pods_memory, disk, inodes, images, pids (available)."""
    memory, pods = facts.get("memory", 900 * MIB), facts.get("pods_memory", 900 * MIB)
    disk = FilesystemUsage(
        time=0.0, capacity=100, available=facts.get("disk", 90), inodes=100, inodes_free=facts.get("inodes", 90)
    )
    images = disk
    if "images" in facts:
        images = FilesystemUsage(time=0.0, capacity=200, available=facts["images"], inodes=0, inodes_free=0)
    return NodeUsage(
        read_at=at,
        started_at=0.0,
        cgroup=CgroupUsage(time=0.0, memory_available=memory),
        memory_capacity=1000 * MIB,
        pids_max=1000,
        pids_current=1000 - facts.get("pids", 900),
        nodefs=disk,
        imagefs=images,
        containerfs=images,
        nodefs_device="8:1",
        imagefs_device="8:2" if "images" in facts else "8:1",
        system_containers=(
            SystemContainerUsage(
                name="pods",
                created_at=0.0,
                cgroup=CgroupUsage(time=0.0, memory_available=pods, memory_working_set=1000 * MIB - pods),
            ),
        ),
    )


class Node:
    """Evaluates one reading after the other."""

    def __init__(self, **keys: Any) -> None:
        self.thresholds = thresholds_of(configured(**keys), Layout.DEDICATED_IMAGES)
        self.memory = CycleState()

    def read(self, at: float, **facts: int) -> CycleResult:
        found = evaluate(self.memory, self.thresholds, readings(node(at, **{"images": 190, **facts})), at, TRANSITION)
        self.memory = found.memory
        return found


@pytest.mark.parametrize(
    ("facts", "pressed"),
    [
        ({}, None),
        ({"memory": 99 * MIB}, "MemoryPressure"),
        ({"memory": 100 * MIB}, None),
        ({"memory": 0}, "MemoryPressure"),
        ({"disk": 9}, "DiskPressure"),
        ({"disk": 10}, None),
        ({"inodes": 4}, "DiskPressure"),
        ({"inodes": 5}, None),
        ({"images": 29}, "DiskPressure"),
        ({"images": 30}, None),
        ({"pids": 1}, None),
    ],
)
def test_the_default_thresholds_are_the_kubelets(facts: dict[str, int], pressed: str | None) -> None:
    found = Node(hard=EVICTION_HARD).read(1.0, **facts)
    assert found.conditions == ({pressed} if pressed else set())


@pytest.mark.parametrize(
    ("huge_pages", "available", "capacity"), [(0, 900, 1000), (850, 50, 150), (950, 0, 100)], ids=str
)
def test_memory_of_huge_pages_is_not_available(huge_pages: int, available: int, capacity: int) -> None:
    """The kubelet subtracts it from what is available, at least to 0; the capacity is that and the working set."""
    read = readings(node(), huge_pages * MIB)["memory.available"]
    assert (read.available, read.capacity) == (available * MIB, capacity * MIB)


def test_the_memory_of_pods_is_a_signal_of_its_own_where_their_limit_is_enforced() -> None:
    limited = Node(hard={"memory.available": "100Mi"}, enforce_pods=True).read(1.0, pods_memory=50 * MIB)
    assert [one.signal for one in limited.act_on] == ["allocatableMemory.available"]
    assert limited.conditions == {"MemoryPressure"}
    assert not Node(hard={"memory.available": "100Mi"}).read(1.0, pods_memory=50 * MIB).act_on


@pytest.mark.parametrize("amount", ["0%", "100%"])
def test_a_threshold_of_0_or_100_percent_is_none(amount: str) -> None:
    assert Node(hard={"memory.available": amount}).thresholds == ()


def test_a_signal_that_is_not_read_meets_no_threshold() -> None:
    thresholds = thresholds_of(configured(hard=EVICTION_HARD), Layout.SINGLE)
    assert not evaluate(CycleState(), thresholds, {}, 1.0, TRANSITION).conditions


@pytest.mark.parametrize(
    ("layout", "copied"),
    [(Layout.SINGLE, "5%"), (Layout.SPLIT, "5%"), (Layout.DEDICATED_IMAGES, "7%")],
)
def test_the_threshold_of_containerfs_is_that_of_the_filesystem_it_is_on(layout: Layout, copied: str) -> None:
    hard = {"nodefs.available": "5%", "imagefs.available": "7%", "containerfs.available": "50%"}
    found = thresholds_of(configured(hard=hard), layout)
    assert [one.amount for one in found if one.signal == "containerfs.available"] == [copied]


def test_a_condition_stays_for_the_transition_period_after_its_threshold_was_met_last() -> None:
    one = Node(hard=EVICTION_HARD)
    for at in (100.0, 200.0):
        assert one.read(at, memory=1).conditions == {"MemoryPressure"}
    assert one.read(499.0).conditions == {"MemoryPressure"}
    assert one.read(500.0).conditions == set()


def test_a_soft_threshold_sets_its_condition_at_once_and_is_acted_on_after_its_grace_period() -> None:
    one = Node(soft={"memory.available": "200Mi"}, soft_grace={"memory.available": 30.0})
    first = one.read(0.0, memory=100 * MIB)
    assert first.conditions == {"MemoryPressure"} and not first.act_on
    assert not one.read(29.0, memory=100 * MIB).act_on
    assert [found.signal for found in one.read(30.0, memory=100 * MIB).act_on] == ["memory.available"]


def test_the_grace_period_begins_again_when_the_signal_was_above_its_threshold_between() -> None:
    one = Node(soft={"memory.available": "200Mi"}, soft_grace={"memory.available": 30.0})
    one.read(0.0, memory=100 * MIB)
    one.read(20.0)
    assert not one.read(40.0, memory=100 * MIB).act_on
    assert one.read(70.0, memory=100 * MIB).act_on


def test_a_threshold_is_met_until_its_minimum_reclaim_is_available_too() -> None:
    one = Node(hard={"memory.available": "100Mi"}, minimum_reclaim={"memory.available": "50Mi"})
    assert not one.read(0.0, memory=120 * MIB).act_on
    assert one.read(10.0, memory=90 * MIB).act_on
    assert one.read(20.0, memory=149 * MIB).act_on
    assert not one.read(30.0, memory=150 * MIB).act_on
    assert not one.read(40.0, memory=120 * MIB).act_on


def test_one_reading_is_acted_on_once() -> None:
    one = Node(hard={"memory.available": "100Mi"})
    assert one.read(5.0, memory=1).act_on
    assert not one.read(5.0, memory=1).act_on
    assert one.read(6.0, memory=1).act_on


def test_memory_goes_before_disk_and_pids() -> None:
    hard = {"pid.available": "500", "nodefs.available": "50%", "imagefs.available": "50%", "memory.available": "1Gi"}
    found = Node(hard=hard).read(1.0, disk=1, pids=1)
    assert [one.signal for one in found.act_on] == ["memory.available", "nodefs.available", "pid.available"]


def test_images_are_on_a_filesystem_of_their_own_where_its_device_differs() -> None:
    assert layout_of(node()) is Layout.SINGLE
    assert layout_of(node(images=100)) is Layout.DEDICATED_IMAGES
    assert layout_of(replace(node(), imagefs_device="")) is None
    assert layout_of(replace(node(), containerfs=None)) is None


def test_a_disk_is_split_where_writable_layers_are_not_with_the_images() -> None:
    split = replace(node(images=100), containerfs_device="8:1")
    assert layout_of(split) is Layout.SPLIT
    assert layout_of(split, separate_disks=False) is Layout.DEDICATED_IMAGES
    assert layout_of(replace(split, containerfs_device="8:2")) is Layout.DEDICATED_IMAGES
    assert layout_of(replace(node(), containerfs_device="8:2")) is Layout.SINGLE


def test_a_threshold_is_hard_without_a_grace_period() -> None:
    assert Threshold(signal="memory.available", amount="1Gi").hard
    assert not Threshold(signal="memory.available", amount="1Gi", grace_seconds=1.0).hard


def test_the_conditions_are_in_the_kubelets_words_and_their_times_change_with_their_status() -> None:
    assert tuple(TEXTS) == PRESSURE_CONDITIONS
    before = transitions_of({}, frozenset(), 100.0)
    after = transitions_of(before, {"DiskPressure"}, 200.0)
    assert transitions_of(after, {"DiskPressure"}, 300.0) == after
    shown = [
        (found["type"], found["status"], found["reason"], found["lastTransitionTime"])
        for found in node_pressure(after).conditions
    ]
    assert shown == [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "1970-01-01T00:01:40Z"),
        ("DiskPressure", "True", "KubeletHasDiskPressure", "1970-01-01T00:03:20Z"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "1970-01-01T00:01:40Z"),
    ]


BROKEN: tuple[object, ...] = (
    None,
    [],
    {"MemoryPressure": [1]},
    {"MemoryPressure": ["True", "now"]},
    {"MemoryPressure": ["True", True]},
    {"No": ["a", 1]},
)


@pytest.mark.parametrize("broken", BROKEN)
def test_saved_transitions_of_no_use_are_left_out(broken: object) -> None:
    assert read_transitions(broken) == {}


def test_saved_transitions_are_read_back() -> None:
    assert read_transitions({"DiskPressure": ["True", 7]}) == {"DiskPressure": ("True", 7.0)}
