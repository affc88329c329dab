"""What /pods and /runningpods/ list."""

from typing import Any

from bus.messages.podsync import PodStatus
from bus.messages.sources import ApiPodStatus, DesiredPod
from services.server.core.pods.pod_lists import find_pod, pod_list, running_pod_list
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState


def desired(uid: str, source: str = "file", **more: Any) -> DesiredPod:
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": {}}
    return DesiredPod(uid=uid, source=source, pod={**pod, **more})


def computed(uid: str, phase: str) -> PodStatus:
    return PodStatus(uid=uid, name=uid, namespace="ns", version=(1, 1), status={"phase": phase})


def test_no_pods_are_null_as_go_encodes_them() -> None:
    assert pod_list([], {}, {}) == {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": None}


def test_a_static_pod_shows_the_computed_status_and_no_kind() -> None:
    items = pod_list([desired("a", status={"phase": "Pending"})], {"a": computed("a", "Running")}, {})["items"]
    assert items == [
        {"metadata": {"name": "a", "namespace": "ns", "uid": "a"}, "spec": {}, "status": {"phase": "Running"}}
    ]


def test_an_api_pod_keeps_the_status_the_api_server_gave_it() -> None:
    items = pod_list([desired("a", "api", status={"phase": "Pending"})], {"a": computed("a", "Running")}, {})["items"]
    assert items[0]["status"] == {"phase": "Pending"}


def test_an_api_pod_shows_the_newest_version_and_status_of_the_api_server() -> None:
    newest = {"a": ApiPodStatus(resource_version="7", status={"phase": "Running"})}
    items = pod_list([desired("a", "api", status={"phase": "Pending"})], {"a": computed("a", "Failed")}, newest)[
        "items"
    ]
    assert items[0]["status"] == {"phase": "Running"}
    assert items[0]["metadata"] == {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "7"}


def test_a_pod_without_a_computed_status_shows_its_own_or_an_empty_one() -> None:
    items = pod_list([desired("a"), desired("b", status={"phase": "Pending"})], {}, {})["items"]
    assert [item["status"] for item in items] == [{}, {"phase": "Pending"}]


def test_pods_are_found_by_namespace_and_name() -> None:
    pods = [desired("a"), desired("b")]
    assert find_pod(pods, "ns", "b") is pods[1]
    assert find_pod(pods, "other", "b") is None


def container(name: str, state: ContainerState) -> Container:
    return Container(id=name, name=name, attempt=0, sandbox_id="s", state=state, created_at=1, image="img")


def runtime_pod(uid: str, *containers: Container, ready: bool = False) -> RuntimePod:
    sandbox = Sandbox(id="s", attempt=0, state=SandboxState.READY if ready else SandboxState.NOTREADY, created_at=1)
    return RuntimePod(
        uid=uid, name=uid, namespace="ns", observed_at=1.0, sandboxes=(sandbox,), containers=tuple(containers)
    )


def test_running_pods_show_their_running_containers() -> None:
    pods = [
        runtime_pod("b", container("c", ContainerState.RUNNING), container("old", ContainerState.EXITED), ready=True),
        runtime_pod("a", ready=True),
        runtime_pod("gone", container("c", ContainerState.EXITED)),
    ]
    items = running_pod_list(pods)["items"]
    assert [item["metadata"]["name"] for item in items] == ["a", "b"]
    assert items[0]["spec"] == {"containers": None}
    assert items[1]["spec"] == {"containers": [{"name": "c", "image": "img", "resources": {}}]}
