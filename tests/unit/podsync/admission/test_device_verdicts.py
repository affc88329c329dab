"""The verdict on a pod that requests devices may wait for other facts as well (node.md 4.15).

Meanwhile no call is repeated and nothing wakes the process; the pod gets its devices, or is rejected, once the fact is
known.
"""

from typing import Any

import pytest

from services.podsync.core.pod.events import DevicesFreshness, NodeChanged
from services.podsync.core.pod.instructions import AllocatePodDevices, Instruction
from tests.unit.podsync.admission.test_device_admission import (
    GPU,
    a_play,
    away,
    devices_of,
    plugin,
    rejection,
    with_devices,
)
from tests.unit.podsync.play import Play

MAX_INSTRUCTIONS = 400  # of one play; a pod with its devices takes some 30


class BoundedPlay(Play):
    """Fails where a decision leads to the same decision again, for ever."""

    performed = 0

    def _do(self, instruction: Instruction) -> None:
        self.performed += 1
        assert self.performed <= MAX_INSTRUCTIONS, f"endless: {self.log[-4:]}"
        super()._do(instruction)


def a_bounded_play(**fields: Any) -> BoundedPlay:
    """Return a node with a plugin of two GPUs, whose play is bounded."""
    play = a_play(**fields)
    play.__class__ = BoundedPlay
    assert isinstance(play, BoundedPlay)
    return play


def a_node(labels: dict[str, str], **allocatable: str) -> dict[str, Any]:
    """Return a Node with these labels and amounts of resources of example.com."""
    amounts = {f"example.com/{kind}": count for kind, count in allocatable.items()}
    return {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": amounts}}


def is_decided(play: Play) -> bool:
    decided: bool = play.core.tracked["u1"].saved.admission_decided
    return decided


def test_a_pod_whose_label_the_node_has_only_just_got_gets_its_device() -> None:
    play = a_bounded_play(source="api", joins_cluster=True, listed=True)
    play.handle(NodeChanged(node=a_node({})))
    play.node = a_node({"gpu": "yes"})  # what the API server has by now
    pod = with_devices(gpu=1)
    pod["spec"]["nodeSelector"] = {"gpu": "yes"}
    play.want(pod)
    assert devices_of(play) == {("c", GPU): ["a"]}
    assert play.running("u1") == [("c", 0)]
    assert play.log.count("AllocatePodDevices") == 1


@pytest.mark.parametrize("wait_seconds", [0.0, 300.0])
def test_a_pod_is_not_admitted_without_its_device_before_the_plugins_are_known(wait_seconds: float) -> None:
    play = a_bounded_play(devices={}, plugins_listed=False, source="api", joins_cluster=True, listed=True)
    play.core.node_state.admissions.plugin_wait_seconds = wait_seconds
    play.handle(NodeChanged(node=a_node({}, gpu="2")))
    play.want(with_devices(gpu=1))
    play.later(wait_seconds + 1)
    assert not is_decided(play)
    play.plug(plugin("a", "b"))
    play.handle(DevicesFreshness(complete=True, stale=False))
    assert devices_of(play) == {("c", GPU): ["a"]}
    assert play.running("u1") == [("c", 0)]


def test_a_static_pod_whose_wait_is_over_waits_for_the_node_before_it_is_rejected() -> None:
    play = a_bounded_play(devices={GPU: away("a")}, source="file", joins_cluster=True, listed=True)
    play.want(with_devices(gpu=1))
    play.later(301)
    assert not is_decided(play)
    play.handle(NodeChanged(node=a_node({}, gpu="2")))
    assert rejection(play)[0] == "UnexpectedAdmissionError"


def test_a_static_pod_that_is_refused_while_its_devices_are_prepared_waits_for_the_node() -> None:
    play = a_bounded_play(source="file", joins_cluster=True, listed=True, hang={"AllocatePodDevices"})
    play.want(with_devices(gpu=1))
    call = play.calls[-1]
    assert isinstance(call, AllocatePodDevices)
    play.core.node_state.admissions.pressures = ("DiskPressure",)
    play.happen(play.effect(call))
    assert play.log.count("AllocatePodDevices") == 1
    assert not is_decided(play)
    play.handle(NodeChanged(node=a_node({})))
    assert rejection(play)[0] == "Evicted"
    assert devices_of(play) == {}
