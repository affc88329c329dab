"""Which instance a log request means."""

from typing import Any

import pytest

from services.server.core.logs.log_source import (
    LogSource,
    LogsUnavailableError,
    choose_instance,
    find_container,
    has_container,
    still_running,
    unpacked_rotated,
)
from shared.model.runtime import Container, ContainerState, RuntimePod


def status(state: dict[str, Any], last: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "c", "state": state, "lastState": last or {}, **more}]}


DEAD = {"terminated": {"containerID": "containerd://old"}}


def chosen(pod_status: dict[str, Any], previous: bool = False) -> str:
    return choose_instance("p", "c", pod_status, previous=previous).container_id


@pytest.mark.parametrize(
    ("pod_status", "previous", "container_id"),
    [
        (status({"running": {}}, containerID="containerd://now"), False, "containerd://now"),
        (status({"running": {}}, DEAD, containerID="containerd://now"), True, "containerd://old"),
        (status({"terminated": {"containerID": "containerd://end"}}, DEAD), False, "containerd://end"),
        (status({"terminated": {}}, DEAD), False, "containerd://old"),
        (status({"waiting": {"reason": "CrashLoopBackOff"}}, DEAD), False, "containerd://old"),
    ],
)
def test_the_instance_follows_the_state(pod_status: dict[str, Any], previous: bool, container_id: str) -> None:
    assert chosen(pod_status, previous) == container_id


@pytest.mark.parametrize(
    ("pod_status", "previous", "text"),
    [
        ({}, False, 'container "c" in pod "p" is not available'),
        (status({"running": {}}), True, 'previous terminated container "c" in pod "p" not found'),
        (status({"terminated": {}}), False, 'container "c" in pod "p" is terminated'),
        (status({"waiting": {}}, {"terminated": {}}), False, 'container "c" in pod "p" is terminated'),
        (
            status({"waiting": {"reason": "ContainerCreating"}}),
            False,
            'container "c" in pod "p" is waiting to start: ContainerCreating',
        ),
        (
            status({"waiting": {"reason": "ErrImagePull"}}),
            False,
            'container "c" in pod "p" is waiting to start: image can\'t be pulled',
        ),
        (
            status({"waiting": {"reason": "ImagePullBackOff"}}),
            False,
            'container "c" in pod "p" is waiting to start: trying and failing to pull image',
        ),
        (status({}), False, 'container "c" in pod "p" is waiting to start - no logs yet'),
    ],
)
def test_without_an_instance_the_reason_is_the_kubelets(pod_status: dict[str, Any], previous: bool, text: str) -> None:
    with pytest.raises(LogsUnavailableError) as unavailable:
        chosen(pod_status, previous)
    assert str(unavailable.value) == text


def test_init_and_ephemeral_containers_are_found_too() -> None:
    entry = {"name": "c", "state": {"running": {}}, "containerID": "containerd://x"}
    assert chosen({"initContainerStatuses": [entry]}) == "containerd://x"
    assert chosen({"ephemeralContainerStatuses": [entry]}) == "containerd://x"
    assert has_container({"spec": {"initContainers": [{"name": "c"}], "containers": None}}, "c")
    assert not has_container({}, "c")


def test_the_log_file_of_an_instance_is_named_for_its_attempt() -> None:
    running = status({"running": {}}, DEAD, containerID="containerd://now", restartCount=3)
    assert choose_instance("p", "c", running, previous=False) == LogSource("containerd://now", 3)
    assert choose_instance("p", "c", running, previous=True) == LogSource("containerd://old", 2)


SOURCE = LogSource("containerd://x", 0)


def observed(state: ContainerState) -> Container:
    return Container(id="x", name="c", attempt=0, sandbox_id="s", state=state, created_at=1)


RUNS = status({"running": {}}, containerID="containerd://x")


@pytest.mark.parametrize(
    ("reported", "pod_status", "stale", "running"),
    [
        (observed(ContainerState.RUNNING), {}, False, True),
        (observed(ContainerState.EXITED), RUNS, False, False),
        (observed(ContainerState.EXITED), RUNS, True, True),  # an old observation proves nothing
        (None, RUNS, False, True),  # started, not yet observed
        (observed(ContainerState.CREATED), RUNS, False, True),
        (None, {}, False, False),
    ],
)
def test_a_follower_waits_while_more_may_come(
    reported: Container | None, pod_status: dict[str, Any], stale: bool, running: bool
) -> None:
    assert still_running(SOURCE, reported, pod_status, stale=stale) is running


def test_an_instance_is_found_among_the_reported_ones() -> None:
    instance = observed(ContainerState.RUNNING)
    pod = RuntimePod(uid="u", name="p", namespace="ns", observed_at=1.0, containers=(instance,))
    assert find_container(pod, SOURCE.bare_id) is instance
    assert find_container(None, "x") is None


def test_a_follower_goes_on_with_rotated_files_that_are_not_packed_in_the_order_of_their_time() -> None:
    names = ["0.log", "0.log.20300102-000000", "0.log.20300101-000000", "0.log.20300103-000000.gz"]
    names += ["0.log.20300104-000000.tmp", "10.log.20300101-000000", "0.logs"]
    assert unpacked_rotated("0.log", names) == ["0.log.20300101-000000", "0.log.20300102-000000"]
