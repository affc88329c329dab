"""The node's pressure conditions: thresholds, how long they hold, and what an earlier life left of them."""

from typing import Any

import pytest

from bus.messages.pleg import NodeObserved
from services.podsync.core.node.pressure import TEXTS, Pressure, read_transitions
from shared.config.field_table import EVICTION_HARD
from shared.model.conditions import PRESSURE_CONDITIONS

MIB = 1 << 20


def observed(**facts: int) -> NodeObserved:
    memory = {"memory_capacity": 1000 * MIB, "memory_available": 900 * MIB}
    disk = {"nodefs_capacity": 100, "nodefs_available": 90}
    known: dict[str, Any] = {**memory, **disk, **facts}
    return NodeObserved(observed_at=1.0, runtime_reachable=True, **known)


def statuses(pressure: Pressure, facts: NodeObserved, now: float) -> dict[str, str]:
    return {c["type"]: c["status"] for c in pressure.judge(facts, now).conditions}


def test_a_node_with_room_has_no_pressure_and_says_so_in_the_kubelets_words() -> None:
    conditions = Pressure(thresholds=EVICTION_HARD, transition_period=300).judge(observed(), 0.0).conditions
    assert [(c["type"], c["status"], c["reason"]) for c in conditions] == [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ]


@pytest.mark.parametrize(
    ("facts", "pressed"),
    [
        ({"memory_available": 99 * MIB}, "MemoryPressure"),
        ({"memory_available": 101 * MIB}, None),
        ({"nodefs_available": 9}, "DiskPressure"),
        ({"nodefs_available": 10}, None),
        ({"nodefs_inodes": 100, "nodefs_inodes_free": 4}, "DiskPressure"),
        ({"imagefs_capacity": 100, "imagefs_available": 14}, "DiskPressure"),
        ({"memory_available": -1}, None),
        ({"memory_available": 0}, "MemoryPressure"),
        ({"memory_capacity": 0, "memory_available": 0}, None),
    ],
)
def test_the_default_thresholds_are_the_kubelets(facts: dict[str, int], pressed: str | None) -> None:
    found = statuses(Pressure(thresholds=EVICTION_HARD, transition_period=300), observed(**facts), 0.0)
    assert [kind for kind, status in found.items() if status == "True"] == ([pressed] if pressed else [])


@pytest.mark.parametrize("thresholds", [{}, {"memory.available": "100%"}, {"memory.available": "0%"}])
def test_no_thresholds_and_thresholds_of_0_or_100_percent_set_no_condition(thresholds: dict[str, str]) -> None:
    full = observed(memory_available=0, nodefs_available=0, imagefs_capacity=100, imagefs_available=0)
    found = statuses(Pressure(thresholds=thresholds, transition_period=300), full, 0.0)
    assert found == dict.fromkeys(PRESSURE_CONDITIONS, "False")


def test_every_pressure_condition_has_its_reasons_and_messages() -> None:
    assert tuple(TEXTS) == PRESSURE_CONDITIONS


def test_a_configured_threshold_counts_instead_and_pids_have_none_by_default() -> None:
    few = observed(pids_max=1000, pids_running=950)
    by_default = statuses(Pressure(thresholds=EVICTION_HARD, transition_period=0), few, 0.0)
    configured = statuses(Pressure(thresholds={"pid.available": "10%"}, transition_period=0), few, 0.0)
    assert (by_default["PIDPressure"], configured["PIDPressure"]) == ("False", "True")


def test_pressure_stays_for_the_transition_period_and_its_time_moves_only_with_the_status() -> None:
    pressure = Pressure(thresholds=EVICTION_HARD, transition_period=300)
    assert statuses(pressure, observed(memory_available=1), 100.0)["MemoryPressure"] == "True"
    assert statuses(pressure, observed(), 399.0)["MemoryPressure"] == "True"
    assert pressure.transitions["MemoryPressure"] == ("True", 100.0)
    assert statuses(pressure, observed(), 401.0)["MemoryPressure"] == "False"
    assert pressure.transitions["MemoryPressure"] == ("False", 401.0)


def test_pressure_ends_with_the_transition_period_after_it_was_seen_last() -> None:
    pressure = Pressure(thresholds=EVICTION_HARD, transition_period=300)
    for now in (100.0, 200.0):
        statuses(pressure, observed(memory_available=1), now)
    assert statuses(pressure, observed(), 499.0)["MemoryPressure"] == "True"
    assert statuses(pressure, observed(), 500.0)["MemoryPressure"] == "False"


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
