"""A device that becomes unhealthy is shown in the status of its container, and acted on once, whenever podsync is
killed."""

from typing import Any

import pytest

from bus.messages.device_plugins import AllocatedDevices, Device, DeviceResource
from bus.messages.podsync import PodState
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.placement.pod_placement import ContainerDevices, ContainerPlacement, PodPlacement
from services.podsync.core.pod.gated_fields import RESOURCE_HEALTH
from services.podsync.core.pod.placement_format import plain_placement
from shared.model.device_action import DEVICE_ACTION_ANNOTATION, DeviceAction
from shared.model.runtime import Container, ContainerState
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step

GPU = "example.com/gpu"
UNHEALTHY = f"Warning DeviceUnhealthy: The device plugin reports {GPU}/a as unhealthy"


def gpus(connected: bool = True, dropped: bool = False, **healthy: bool) -> DeviceResource:
    devices = () if dropped else tuple(Device(id=name, healthy=health) for name, health in healthy.items())
    return DeviceResource(resource=GPU, connected=connected, since=1.0, dropped=dropped, devices=devices)


def placed(**containers: str) -> PodPlacement:
    """Return a placement where each container has the devices with these one-letter ids."""
    return PodPlacement(
        containers={
            name: ContainerPlacement(
                devices=(ContainerDevices(resource=GPU, ids=frozenset(ids), setup=AllocatedDevices()),)
            )
            for name, ids in containers.items()
        }
    )


def a_play(pod: Pod | None = None, placement: PodPlacement | None = None, **fields: Any) -> Play:
    """Return a node with this pod, whose container `c` has the devices a and b, both healthy."""
    play = Play(**{"source": "api", "listed": True, "devices": {GPU: gpus(a=True, b=True, x=True)}, **fields})
    play.want(pod or a_pod())
    play.disk["u1"]["placement"] = plain_placement(placement or placed(c="ab"))
    play.restart()
    play.events.clear()
    play.log.clear()
    return play


def instances(play: Play, name: str = "c") -> list[Container]:
    return [c for c in play.containers.get("u1", []) if c.name == name]


def runs(play: Play, name: str = "c") -> list[int]:
    """Return the attempts of the container that run."""
    return [c.attempt for c in instances(play, name) if c.state is ContainerState.RUNNING]


def shown(play: Play, name: str = "c") -> dict[str, str]:
    """Return the health of the container's devices as its status shows it."""
    statuses = {status["name"]: status for status in play.statuses["u1"].status["containerStatuses"]}
    listed = statuses[name].get("allocatedResourcesStatus", [])
    assert [resource["name"] for resource in listed] in ([], [GPU])
    return {device["resourceID"]: device["health"] for resource in listed for device in resource["resources"]}


def test_the_status_shows_the_health_of_the_devices_of_the_container_and_of_no_others() -> None:
    play = a_play()
    assert shown(play) == {"a": "Healthy", "b": "Healthy"}
    play.plug(gpus(a=False, b=True, x=False))
    assert shown(play) == {"a": "Unhealthy", "b": "Healthy"}
    play.plug(gpus(b=True))
    assert shown(play) == {"a": "Unknown", "b": "Healthy"}


def test_a_plugin_that_restarts_changes_no_status_and_one_that_stays_away_makes_the_health_unknown() -> None:
    play = a_play()
    play.plug(gpus(a=False, b=True))
    before = play.statuses["u1"].version
    play.plug(gpus(connected=False, a=False, b=False))
    assert (shown(play), play.statuses["u1"].version) == ({"a": "Unhealthy", "b": "Healthy"}, before)
    play.start()  # with podsync, which knows the health from its record
    play.run()
    assert shown(play) == {"a": "Unhealthy", "b": "Healthy"}
    play.plug(gpus(connected=False, dropped=True))
    assert shown(play) == {"a": "Unknown", "b": "Unknown"}
    play.plug(gpus(a=False, b=True))
    assert shown(play) == {"a": "Unhealthy", "b": "Healthy"}


def test_without_the_gate_no_status_shows_the_health_of_devices() -> None:
    play = a_play(facts=MachineFacts(gates_off=frozenset({RESOURCE_HEALTH})))
    assert shown(play) == {}


def test_the_status_of_a_pod_that_has_ended_keeps_the_last_health() -> None:
    play = a_play(a_pod(restartPolicy="Never"))
    play.exit("u1", 0)
    assert play.core.tracked["u1"].saved.state is PodState.FINISHED
    play.plug(gpus(a=False, b=False))
    play.restart()
    assert shown(play) == {"a": "Healthy", "b": "Healthy"}


def test_an_unhealthy_device_is_an_event_once_and_the_container_runs_on() -> None:
    play = a_play()
    for _ in range(2):
        play.plug(gpus(a=False, b=True))
        play.restart()
    assert [event for event in play.events if "Device" in event] == [UNHEALTHY]
    assert runs(play) == [0]
    play.plug(gpus(a=True, b=True))
    play.plug(gpus(a=False, b=True))
    assert [event.split(":")[0] for event in play.events if "Device" in event] == [
        "Warning DeviceUnhealthy",
        "Normal DeviceHealthy",
        "Warning DeviceUnhealthy",
    ]


def test_neither_the_end_of_a_plugin_nor_a_shorter_list_makes_a_device_unhealthy() -> None:
    play = a_play(device_action=DeviceAction.FAIL_POD)
    play.plug(gpus(connected=False, a=False, b=False))
    play.plug(gpus(connected=False, dropped=True))
    play.plug(gpus(x=True))
    assert [event for event in play.events if "Device" in event] == []
    assert runs(play) == [0]


def test_a_device_that_was_unhealthy_before_its_plugin_restarted_is_not_reported_again() -> None:
    play = a_play(device_action=DeviceAction.RESTART_CONTAINER)
    play.plug(gpus(a=False, b=True))
    play.plug(gpus(connected=False, a=False, b=False))
    play.plug(gpus(a=False, b=True))
    assert [event for event in play.events if "DeviceUnhealthy" in event] == [f"{UNHEALTHY}; the container is stopped"]
    assert runs(play) == [1]


def test_a_container_with_an_unhealthy_device_is_restarted_once() -> None:
    pod = a_pod(containers=[a_container("c"), a_container("other")])
    play = a_play(pod, placed(c="ab", other="x"), device_action=DeviceAction.RESTART_CONTAINER)
    play.plug(gpus(a=False, b=True, x=True))
    play.plug(gpus(a=False, b=True, x=True))
    assert (runs(play), runs(play, "other")) == ([1], [0])
    assert [event for event in play.events if "DeviceUnhealthy" in event] == [f"{UNHEALTHY}; the container is stopped"]
    assert "Normal Killing: A device of container c is unhealthy, will be restarted" in play.events
    play.plug(gpus(a=False, b=False, x=True))
    play.later(60)
    assert runs(play) == [2]


def test_a_container_of_a_pod_that_never_restarts_is_stopped_as_after_a_failed_probe() -> None:
    play = a_play(a_pod(restartPolicy="Never"), device_action=DeviceAction.RESTART_CONTAINER)
    play.plug(gpus(a=False))
    assert "Normal Killing: A device of container c is unhealthy" in play.events
    play.later(60)
    assert (len(instances(play)), runs(play)) == (1, [])


def test_a_sidecar_is_restarted_and_an_init_container_that_has_completed_is_left_alone() -> None:
    init = [a_container("first"), a_container("sidecar", restartPolicy="Always")]
    play = Play(source="api", listed=True, device_action=DeviceAction.RESTART_CONTAINER, devices={GPU: gpus(a=True)})
    play.want(a_pod(initContainers=init))
    play.exit("u1", 0, "first")
    play.disk["u1"]["placement"] = plain_placement(placed(first="a", sidecar="a", c="a"))
    play.restart()
    assert (runs(play, "first"), runs(play, "sidecar"), runs(play)) == ([], [0], [0])
    play.plug(gpus(a=False))
    assert (len(instances(play, "first")), runs(play, "sidecar"), runs(play)) == (1, [1], [1])
    assert len([event for event in play.events if "DeviceUnhealthy" in event]) == 2


def test_a_pod_with_an_unhealthy_device_fails_so_that_its_owner_replaces_it() -> None:
    play = a_play(device_action=DeviceAction.FAIL_POD)
    play.plug(gpus(a=False, b=False))
    status = play.statuses["u1"].status
    assert (status["phase"], status["reason"]) == ("Failed", "DeviceUnhealthy")
    message = f"The device plugin reports {GPU}/a, {GPU}/b as unhealthy, which container c has"
    assert status["message"] == message
    condition = next(c for c in status["conditions"] if c["type"] == "DisruptionTarget")
    assert (condition["status"], condition["reason"], condition["message"]) == ("True", "TerminationByKubelet", message)
    assert runs(play) == []
    assert play.log.count("KillPod") == 1


def test_a_pod_whose_container_waits_for_its_restart_fails_too() -> None:
    play = a_play(device_action=DeviceAction.FAIL_POD)
    for _ in range(2):
        play.exit("u1", 1)
    assert runs(play) == []
    play.plug(gpus(a=False, b=True))
    assert f"{UNHEALTHY}; the pod is ended as failed" in play.events
    assert play.statuses["u1"].status["phase"] == "Failed"


def test_a_static_pod_has_no_owner_and_is_restarted_instead() -> None:
    play = a_play(source="file", device_action=DeviceAction.FAIL_POD)
    play.plug(gpus(a=False))
    assert runs(play) == [1]
    assert play.statuses["u1"].status["phase"] == "Running"


@pytest.mark.parametrize(
    ("annotation", "node_action", "attempts"),
    [
        ("None", DeviceAction.FAIL_POD, [0]),
        ("RestartContainer", DeviceAction.NONE, [1]),
        ("FailPod", DeviceAction.NONE, []),
        ("restart", DeviceAction.RESTART_CONTAINER, [1]),
    ],
)
def test_the_annotation_of_the_pod_overrides_the_nodes_action(
    annotation: str, node_action: DeviceAction, attempts: list[int]
) -> None:
    pod = a_pod()
    pod["metadata"]["annotations"] = {DEVICE_ACTION_ANNOTATION: annotation}
    play = a_play(pod, device_action=node_action)
    play.plug(gpus(a=False))
    assert runs(play) == attempts
    named = [event for event in play.events if "the annotation bulkhead/device-unhealthy-action is 'restart'" in event]
    assert bool(named) == (annotation == "restart")


@pytest.mark.long
@pytest.mark.parametrize("kill_at", every_step(24))
@pytest.mark.parametrize("action", [DeviceAction.RESTART_CONTAINER, DeviceAction.FAIL_POD])
def test_the_action_is_taken_once_whenever_podsync_is_killed(action: DeviceAction, kill_at: int) -> None:
    play = a_play(device_action=action)
    play.steps, play.kill_at = 0, kill_at
    play.devices[GPU] = gpus(a=False, b=True)
    play.plug(gpus(a=False, b=True))
    play.later(120)
    if action is DeviceAction.RESTART_CONTAINER:
        assert (runs(play), len({c.attempt for c in instances(play)}) <= 2) == ([1], True)
        assert play.statuses["u1"].status["phase"] == "Running"
    else:
        assert (runs(play), play.statuses["u1"].status["reason"]) == ([], "DeviceUnhealthy")


def test_the_device_that_became_unhealthy_while_podsync_was_away_is_acted_on() -> None:
    play = a_play(device_action=DeviceAction.RESTART_CONTAINER, listed=False)
    play.devices[GPU] = gpus(a=False, b=True)
    play.start()  # the plugin's list is there before the first list of the runtime
    play.run()
    assert runs(play) == [1]
