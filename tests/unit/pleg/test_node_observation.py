"""When a change of node facts is material."""

import pytest

from bus.messages.pleg import NodeObserved
from services.pleg.core.node_observation import MachineReading, NodeObservation, is_material
from shared.cri.interface import RuntimeCondition, RuntimeVersion
from shared.model.frozen_copy import replace

NODE = NodeObserved(
    observed_at=1.0,
    runtime_reachable=True,
    memory_capacity=1000 * 2**20,
    nodefs_capacity=10_000,
)


@pytest.mark.parametrize(
    "change",
    [
        {"runtime_reachable": False},
        {"network_message": "other"},
        {"runtime_version": "2"},
        {"event_stream": True},
        {"memory_capacity": 2**20},
        {"cpus": 3},
    ],
)
def test_a_changed_fact_is_material(change: dict[str, object]) -> None:
    assert is_material(NODE, replace(NODE, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"observed_at": 2.0},
        {"last_relist_at": 2.0},
    ],
)
def test_a_moment_is_not(change: dict[str, object]) -> None:
    assert not is_material(NODE, replace(NODE, **change))  # type: ignore[arg-type]


def test_nothing_is_sent_before_both_runtime_and_machine_were_asked() -> None:
    facts = NodeObservation()
    facts.machine_read(MachineReading(cpus=2), 1.0)
    assert facts.to_publish(1.0) is None
    facts.runtime_silent(2.0)
    sent = facts.to_publish(2.0)
    assert sent is not None and not sent.runtime_reachable and sent.network_message == "network state unknown"


def test_the_last_answer_of_the_runtime_is_kept_while_it_does_not_answer() -> None:
    facts = NodeObservation()
    ready = RuntimeCondition(type="RuntimeReady", status=True, reason="", message="")
    facts.runtime_answered(RuntimeVersion(name="containerd", version="1", api_version="v1"), (ready,), 1.0)
    facts.machine_read(MachineReading(), 1.0)
    facts.runtime_silent(2.0)
    sent = facts.to_publish(2.0)
    assert sent is not None
    assert (sent.runtime_reachable, sent.runtime_ready, sent.network_ready) == (False, True, False)
    assert sent.network_message.endswith("the runtime does not report this condition")
