"""What the status of a pod shows at each stage of its lifetime, on a real runtime and a real API server."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from shared.kube import paths
from shared.model.objects import Object
from shared.plugin_grpc import pods_v1alpha1_pb2 as v1alpha1
from shared.plugin_grpc.pod_encoding import decode_pod, encode_pod
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import Node, container, pod_of, status_of
from tests.support.agents.conditions import condition_of
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

WAIT_FOR_FILE = "while [ ! -e /shared/go ]; do sleep 0.1; done"
SHARED = [{"name": "shared", "mountPath": "/shared"}]
VOLUME = [{"name": "shared", "emptyDir": {}}]

PODS = {
    "statuses-init": pod_of(
        "statuses-init",
        container("c"),
        initContainers=[
            container("first", WAIT_FOR_FILE, volumeMounts=SHARED),
            container("second", "while [ ! -e /shared/on ]; do sleep 0.1; done", volumeMounts=SHARED),
        ],
        volumes=VOLUME,
    ),
    "statuses-init-fails": pod_of(
        "statuses-init-fails",
        container("c"),
        initContainers=[container("setup", "exit 3"), container("never")],
        restartPolicy="Never",
    ),
    "statuses-sidecar": pod_of(
        "statuses-sidecar",
        container("c"),
        initContainers=[
            container(
                "helper",
                restartPolicy="Always",
                volumeMounts=SHARED,
                startupProbe={
                    "exec": {"command": ["test", "-e", "/shared/go"]},
                    "periodSeconds": 1,
                    "failureThreshold": 600,
                },
                readinessProbe={"exec": {"command": ["test", "-e", "/shared/ready"]}, "periodSeconds": 1},
            )
        ],
        volumes=VOLUME,
    ),
}
GATED = "statuses-gated"


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    node.put(PODS)
    await node.create(node.pod(GATED, readinessGates=[{"conditionType": "example.com/gate"}]))
    yield
    await node.delete_pod(GATED)
    await node.take_away(PODS)


def conditions(pod: Object) -> dict[str, str]:
    return {c["type"]: c["status"] for c in pod["status"]["conditions"]}


def reason_and_message(pod: Object, kind: str) -> tuple[str, str]:
    """Reason and message of a condition."""
    condition = condition_of(pod, kind)
    return condition.get("reason", ""), condition.get("message", "")


async def touch(node: Node, name: str, file: str) -> None:
    """Make the file in the volume `shared` of the pod; from outside, as a command in a container may end with it."""
    pod = await node.agent.runtime_pod(name)
    assert pod is not None
    (node.agent.home.path / "kubelet/pods" / pod.uid / "volumes/kubernetes.io~empty-dir/shared" / file).touch()


async def test_init_containers_one_after_the_other(node: Node) -> None:
    name = "statuses-init"
    pod = await node.wait_static(
        name, lambda p: "running" in (status_of(p, "first").get("state") or {}), "to begin", WAIT_SECONDS
    )
    assert pod["status"]["phase"] == "Pending"
    assert reason_and_message(pod, "Initialized") == (
        "ContainersNotInitialized",
        "containers with incomplete status: [first second]",
    )
    assert [s["name"] for s in pod["status"]["initContainerStatuses"]] == ["first", "second"]
    assert status_of(pod, "second")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status_of(pod, "c")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert (status_of(pod, "first")["started"], status_of(pod, "first")["ready"]) == (True, False)
    await touch(node, name, "go")
    pod = await node.wait_static(name, lambda p: "running" in status_of(p, "second")["state"], "to go on", WAIT_SECONDS)
    assert reason_and_message(pod, "Initialized")[1] == "containers with incomplete status: [second]"
    assert status_of(pod, "first")["state"]["terminated"]["reason"] == "Completed"
    assert (status_of(pod, "first")["started"], status_of(pod, "first")["ready"]) == (False, True)
    await touch(node, name, "on")
    pod = await node.wait_phase(name, "Running", WAIT_SECONDS)
    assert conditions(pod)["Initialized"] == conditions(pod)["Ready"] == "True"


async def test_an_init_container_that_fails_for_good_fails_the_pod(node: Node) -> None:
    pod = await node.wait_phase("statuses-init-fails", "Failed", WAIT_SECONDS)
    assert status_of(pod, "setup")["state"]["terminated"]["exitCode"] == 3
    assert status_of(pod, "never")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status_of(pod, "c")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert reason_and_message(pod, "Initialized")[1] == "containers with incomplete status: [setup never]"
    assert reason_and_message(pod, "Ready") == reason_and_message(pod, "ContainersReady") == ("PodFailed", "")


async def test_a_sidecar_starts_the_others_and_counts_for_readiness(node: Node) -> None:
    name = "statuses-sidecar"
    pod = await node.wait_static(
        name, lambda p: "running" in (status_of(p, "helper").get("state") or {}), "to begin", WAIT_SECONDS
    )
    assert pod["status"]["phase"] == "Pending"
    assert status_of(pod, "helper")["started"] is False
    assert reason_and_message(pod, "Initialized")[1] == "containers with incomplete status: [helper]"
    await touch(node, name, "go")
    pod = await node.wait_phase(name, "Running", WAIT_SECONDS)
    assert status_of(pod, "helper")["started"] is True
    assert conditions(pod)["Initialized"] == "True"
    assert reason_and_message(pod, "ContainersReady") == (
        "ContainersNotReady",
        "containers with unready status: [helper]",
    )
    await touch(node, name, "ready")
    await node.wait_static(name, lambda p: conditions(p)["Ready"] == "True", "to be ready", WAIT_SECONDS)


async def test_a_readiness_gate_that_is_opened(node: Node) -> None:
    name = GATED

    def waits(pod: Object) -> bool:
        return condition_of(pod, "Ready").get("reason") == "ReadinessGatesNotReady"

    pod = await node.wait_pod(name, waits, "to wait for its gate", WAIT_SECONDS)
    assert conditions(pod)["ContainersReady"] == "True"
    assert (
        reason_and_message(pod, "Ready")[1]
        == 'corresponding condition of pod readiness gate "example.com/gate" does not exist.'
    )
    gate = {"type": "example.com/gate", "status": "True"}
    path = paths.pod_status("default", name)
    await node.plane.admin.patch(path, {"status": {"conditions": [gate]}})
    pod = await node.wait_pod(name, lambda p: conditions(p)["Ready"] == "True", "to be ready", WAIT_SECONDS)
    assert conditions(pod)["example.com/gate"] == "True"


async def test_what_a_static_pod_shows_its_mirror_shows(node: Node) -> None:
    mirror = await node.wait_pod(
        f"statuses-init-fails-{NODE}", lambda p: p["status"].get("phase") == "Failed", "to show it", WAIT_SECONDS
    )
    assert status_of(mirror, "setup")["state"]["terminated"]["exitCode"] == 3


async def test_programs_of_the_node_watch_the_same_over_the_pods_api(node: Node) -> None:
    name = "statuses-init-fails"
    pod = await node.wait_phase(name, "Failed", WAIT_SECONDS)
    options = (("grpc.use_local_subchannel_pool", 1),)
    socket = node.agent.home.path / "kubelet/pods-api/pods-api.sock"
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        watch: Any = channel.unary_stream(
            "/v1alpha1.Pods/WatchPods",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=v1alpha1.WatchPodsEvent.FromString,
        )(v1alpha1.WatchPodsRequest(), wait_for_ready=True, timeout=WAIT_SECONDS)
        found = {}
        while (event := await watch.read()).type != v1alpha1.INITIAL_SYNC_COMPLETE:
            shown = decode_pod(event.pod)
            found[shown.metadata.name] = shown
    assert found[pod["metadata"]["name"]] == decode_pod(encode_pod(pod))
    assert {GATED, f"statuses-sidecar-{NODE}"} <= found.keys()
