"""A device of a resource claim that becomes unhealthy is acted on once, as one of a device plugin is, whenever podsync
is killed."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim, PodClaims
from shared.model.device_action import DEVICE_ACTION_ANNOTATION, DeviceAction
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step
from tests.unit.podsync.sync.test_resource_claims import extended

NAME = "claim:gpu/gpu.example.com/node/a"
TOO_HOT = f"The driver reports {NAME} (too hot) as unhealthy"


def claims(health: str, message: str = "", **fields: Any) -> PodClaims:
    device = ClaimDevice(driver="gpu.example.com", pool="node", device="a", health=health, message=message)
    whole: dict[str, Any] = {"name": "gpu", "claim": "web-gpu", "state": ClaimState.PREPARED, "devices": (device,)}
    return PodClaims(uid="u1", claims=(PodClaim(**{**whole, **fields}),))


def a_pod_with_a_claim(action: DeviceAction | None = None, **spec: Any) -> Pod:
    """A pod whose container `c` has the device, and `other` has none."""
    used = {"claims": [{"name": "gpu"}]}
    pod = a_pod(
        containers=[a_container("c", resources=used), a_container("other")],
        resourceClaims=[{"name": "gpu", "resourceClaimName": "web-gpu"}],
        **spec,
    )
    if action is not None:
        pod["metadata"]["annotations"] = {DEVICE_ACTION_ANNOTATION: str(action)}
    return pod


def a_play(pod: Pod | None = None) -> Play:
    """The pod runs, and its device is healthy."""
    play = Play(source="api")
    play.put_claims("u1", claims("Healthy"))
    play.want(pod or a_pod_with_a_claim())
    assert play.running("u1") == [("c", 0), ("other", 0)]
    play.events.clear()
    return play


def told(play: Play) -> list[str]:
    """The events about devices."""
    return [event for event in play.events if "Device" in event]


def test_each_change_is_an_event_with_what_the_driver_says_and_the_containers_run_on() -> None:
    play = a_play()
    for _ in range(2):
        play.put_claims("u1", claims("Unhealthy", "too hot"))
        play.restart()
    assert told(play) == [f"Warning DeviceUnhealthy: {TOO_HOT}"]
    play.put_claims("u1", claims("Healthy"))
    assert told(play)[1:] == [f"Normal DeviceHealthy: The driver reports {NAME} as healthy again"]
    assert play.running("u1") == [("c", 0), ("other", 0)]


@pytest.mark.parametrize(
    "item", [claims("Unknown"), claims(""), claims("Unhealthy", devices=(), state=ClaimState.PENDING), None]
)
def test_what_is_no_report_changes_nothing(item: PodClaims | None) -> None:
    play = a_play(a_pod_with_a_claim(DeviceAction.FAIL_POD))
    play.put_claims("u1", item)
    assert (told(play), play.running("u1")) == ([], [("c", 0), ("other", 0)])


@pytest.mark.parametrize("step", every_step(12))
def test_the_container_is_restarted_once_whenever_podsync_is_killed(step: int) -> None:
    play = a_play(a_pod_with_a_claim(DeviceAction.RESTART_CONTAINER))
    play.steps, play.kill_at = 0, step
    play.put_claims("u1", claims("Unhealthy", "too hot"))
    play.kill_at = -1
    play.later(60)
    assert sorted(play.running("u1")) == [("c", 1), ("other", 0)]
    play.restart()
    play.later(60)
    assert sorted(play.running("u1")) == [("c", 1), ("other", 0)]


def test_the_pod_fails_so_that_its_owner_replaces_it() -> None:
    play = a_play(a_pod_with_a_claim(DeviceAction.FAIL_POD))
    play.put_claims("u1", claims("Unhealthy", "too hot"))
    assert told(play) == [f"Warning DeviceUnhealthy: {TOO_HOT}; the pod is ended as failed"]
    assert play.core.tracked["u1"].saved.state is PodState.TERMINATED
    play.put_claims("u1", None)
    status = play.statuses["u1"].status
    assert (status["phase"], status["reason"]) == ("Failed", "DeviceUnhealthy")
    assert status["message"] == f"{TOO_HOT}, which container c has"


def test_a_device_of_extended_resources_is_named_by_its_claim() -> None:
    play = Play(source="api")
    of_claim: dict[str, Any] = {"name": "", "claim": "web-ext", "containers": {"c": ("r0",)}}
    play.put_claims("u1", claims("Healthy", **of_claim))
    play.want(a_pod() | {"status": extended()})
    play.put_claims("u1", claims("Unhealthy", **of_claim))
    name = "claim:web-ext/gpu.example.com/node/a"
    assert told(play) == [f"Warning DeviceUnhealthy: The driver reports {name} as unhealthy"]
