"""When a change of node facts is material."""

from dataclasses import replace

import pytest

from bus.messages.pleg import NodeObserved
from services.pleg.core.node_observation import MachineReading, NodeObservation, is_material
from shared.config.field_table import EVICTION_HARD
from shared.cri.interface import RuntimeCondition, RuntimeVersion

NODE = NodeObserved(
    observed_at=1.0,
    runtime_reachable=True,
    memory_capacity=1000 * 2**20,
    memory_available=500 * 2**20,
    nodefs_capacity=10_000,
    nodefs_available=1_000,
    nodefs_inodes=1_000,
    nodefs_inodes_free=500,
    pids_max=1_000,
    pids_running=100,
)


@pytest.mark.parametrize(
    "change",
    [
        {"runtime_reachable": False},
        {"network_message": "other"},
        {"runtime_version": "2"},
        {"event_stream": True},
        {"memory_available": 489 * 2**20},
        {"nodefs_available": 999},  # crosses 10 %
        {"nodefs_inodes_free": -1},
        {"pids_running": 111},
    ],
)
def test_a_fact_or_a_signal_that_moved_far_is_material(change: dict[str, object]) -> None:
    assert is_material(NODE, replace(NODE, **change), EVICTION_HARD)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"observed_at": 2.0},
        {"last_relist_at": 2.0},
        {"memory_available": 491 * 2**20},
        {"nodefs_available": 1_001},
        {"pids_running": 105},
    ],
)
def test_a_moment_or_a_small_movement_is_not(change: dict[str, object]) -> None:
    assert not is_material(NODE, replace(NODE, **change), EVICTION_HARD)  # type: ignore[arg-type]


def test_the_configured_threshold_and_no_other_makes_a_small_movement_material() -> None:
    fewer = replace(NODE, nodefs_available=999)
    assert not is_material(NODE, fewer, {})
    assert not is_material(NODE, fewer, {"nodefs.available": "20%"})
    assert is_material(NODE, fewer, {"nodefs.available": "1k"})


def test_nothing_is_sent_before_both_runtime_and_machine_were_asked() -> None:
    facts = NodeObservation(EVICTION_HARD)
    facts.machine_read(MachineReading(cpus=2), 1.0)
    assert facts.to_publish(1.0) is None
    facts.runtime_silent(2.0)
    sent = facts.to_publish(2.0)
    assert sent is not None and not sent.runtime_reachable and sent.network_message == "network state unknown"


def test_the_last_answer_of_the_runtime_is_kept_while_it_does_not_answer() -> None:
    facts = NodeObservation(EVICTION_HARD)
    ready = RuntimeCondition(type="RuntimeReady", status=True, reason="", message="")
    facts.runtime_answered(RuntimeVersion(name="containerd", version="1", api_version="v1"), (ready,), 1.0)
    facts.machine_read(MachineReading(), 1.0)
    facts.runtime_silent(2.0)
    sent = facts.to_publish(2.0)
    assert sent is not None
    assert (sent.runtime_reachable, sent.runtime_ready, sent.network_ready) == (False, True, False)
    assert sent.network_message.endswith("the runtime does not report this condition")
