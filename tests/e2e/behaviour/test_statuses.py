"""What the status of a pod shows at each stage of its life, on a real runtime and a real API server."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.kube import paths
from shared.model.objects import Object
from tests.agent import NODE
from tests.behaviour import Node, container, pod_of, status_of
from tests.cluster import condition_of

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(180)]

SOON = 60.0  # seconds, on a machine that does much else
WAIT_FOR_FILE = "while [ ! -e /shared/go ]; do sleep 0.1; done"
SHARED = [{"name": "shared", "mountPath": "/shared"}]
VOLUME = [{"name": "shared", "emptyDir": {}}]
ALL_RESTART = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]
LAST_WORDS = "printf 'last words' > /dev/termination-log"

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
    "statuses-init-retries": pod_of(
        "statuses-init-retries",
        container("c"),
        initContainers=[container("setup", "exit 4")],
        restartPolicy="OnFailure",
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
    "statuses-sidecar-done": pod_of(
        "statuses-sidecar-done",
        container("c", "exit 0"),
        initContainers=[container("helper", "trap 'exit 0' TERM; sleep 1000000 & wait", restartPolicy="Always")],
        restartPolicy="Never",
    ),
    "statuses-on-failure": pod_of(
        "statuses-on-failure",
        container("works", "exit 0"),
        container("fails", "exit 5"),
        restartPolicy="OnFailure",
    ),
    "statuses-message-file": pod_of(
        "statuses-message-file", container("c", f"echo log; {LAST_WORDS}; exit 1"), restartPolicy="Never"
    ),
    "statuses-message-long": pod_of(
        "statuses-message-long",
        *(container(f"c{i}", "yes x | tr -d '\\n' | head -c 4096 > /dev/termination-log") for i in range(4)),
        restartPolicy="Never",
    ),
    "statuses-message-log": pod_of(
        "statuses-message-log",
        container("c", "echo from the log; exit 1", terminationMessagePolicy="FallbackToLogsOnError"),
        restartPolicy="Never",
    ),
    "statuses-message-none": pod_of(
        "statuses-message-none",
        container("c", "echo from the log; exit 0", terminationMessagePolicy="FallbackToLogsOnError"),
        restartPolicy="Never",
    ),
    "statuses-not-ready": pod_of(
        "statuses-not-ready",
        container("z", readinessProbe={"exec": {"command": ["false"]}, "periodSeconds": 1}),
        container("a", readinessProbe={"exec": {"command": ["false"]}, "periodSeconds": 1}),
        container("fine"),
    ),
    "statuses-no-image": pod_of(
        "statuses-no-image", container("c", image="localhost/statuses/none:1", imagePullPolicy="Never"), container("d")
    ),
    "statuses-resources": pod_of(
        "statuses-resources",
        container("c", resources={"requests": {"cpu": "0.01", "memory": "8Mi"}, "limits": {"memory": "64Mi"}}),
    ),
    "statuses-mounts": pod_of(
        "statuses-mounts",
        container("c", volumeMounts=[*SHARED, {"name": "shared", "mountPath": "/again", "readOnly": True}]),
        volumes=VOLUME,
    ),
    "statuses-all-restart": pod_of(
        "statuses-all-restart",
        container("other"),
        container(
            "trigger",
            "[ -e /shared/once ] && exec sleep 1000000; touch /shared/once; exit 88",
            volumeMounts=SHARED,
            restartPolicy="Never",
            restartPolicyRules=ALL_RESTART,
        ),
        initContainers=[container("setup", "exit 0")],
        volumes=VOLUME,
        restartPolicy="Never",
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


def said(pod: Object, kind: str) -> tuple[str, str]:
    """Reason and message of a condition."""
    condition = condition_of(pod, kind)
    return condition.get("reason", ""), condition.get("message", "")


async def touch(node: Node, pod: str, container_name: str, file: str) -> None:
    await node.inside(pod, container_name, "touch", file)


async def test_init_containers_one_after_the_other(node: Node) -> None:
    name = "statuses-init"
    pod = await node.wait_static(
        name, lambda p: "running" in (status_of(p, "first").get("state") or {}), "to begin", SOON
    )
    assert pod["status"]["phase"] == "Pending"
    assert said(pod, "Initialized") == (
        "ContainersNotInitialized",
        "containers with incomplete status: [first second]",
    )
    assert [s["name"] for s in pod["status"]["initContainerStatuses"]] == ["first", "second"]
    assert status_of(pod, "second")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status_of(pod, "c")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert (status_of(pod, "first")["started"], status_of(pod, "first")["ready"]) == (True, False)
    await touch(node, name, "first", "/shared/go")
    pod = await node.wait_static(name, lambda p: "running" in status_of(p, "second")["state"], "to go on", SOON)
    assert said(pod, "Initialized")[1] == "containers with incomplete status: [second]"
    assert status_of(pod, "first")["state"]["terminated"]["reason"] == "Completed"
    assert (status_of(pod, "first")["started"], status_of(pod, "first")["ready"]) == (False, True)
    await touch(node, name, "second", "/shared/on")
    pod = await node.wait_phase(name, "Running", SOON)
    assert conditions(pod)["Initialized"] == conditions(pod)["Ready"] == "True"


async def test_an_init_container_that_fails_for_good_fails_the_pod(node: Node) -> None:
    pod = await node.wait_phase("statuses-init-fails", "Failed", SOON)
    assert status_of(pod, "setup")["state"]["terminated"]["exitCode"] == 3
    assert status_of(pod, "never")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status_of(pod, "c")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert said(pod, "Initialized")[1] == "containers with incomplete status: [setup never]"
    assert said(pod, "Ready") == said(pod, "ContainersReady") == ("PodFailed", "")


async def test_an_init_container_that_is_tried_again_keeps_the_pod_pending(node: Node) -> None:
    def backs_off(pod: Object) -> bool:
        state = status_of(pod, "setup").get("state") or {}
        return bool((state.get("waiting") or {}).get("reason") == "CrashLoopBackOff")

    pod = await node.wait_static("statuses-init-retries", backs_off, "to back off", SOON)
    assert pod["status"]["phase"] == "Pending"
    shown = status_of(pod, "setup")
    assert (shown["restartCount"], shown["lastState"]["terminated"]["exitCode"]) == (1, 4)


async def test_a_sidecar_starts_the_others_and_counts_for_readiness(node: Node) -> None:
    name = "statuses-sidecar"
    pod = await node.wait_static(
        name, lambda p: "running" in (status_of(p, "helper").get("state") or {}), "to begin", SOON
    )
    assert pod["status"]["phase"] == "Pending"
    assert status_of(pod, "helper")["started"] is False
    assert said(pod, "Initialized")[1] == "containers with incomplete status: [helper]"
    await touch(node, name, "helper", "/shared/go")
    pod = await node.wait_phase(name, "Running", SOON)
    assert status_of(pod, "helper")["started"] is True
    assert conditions(pod)["Initialized"] == "True"
    assert said(pod, "ContainersReady") == ("ContainersNotReady", "containers with unready status: [helper]")
    await touch(node, name, "helper", "/shared/ready")
    await node.wait_static(name, lambda p: conditions(p)["Ready"] == "True", "to be ready", SOON)


async def test_a_sidecar_does_not_keep_a_pod_from_completing(node: Node) -> None:
    pod = await node.wait_phase("statuses-sidecar-done", "Succeeded", SOON)
    assert "terminated" in status_of(pod, "helper")["state"]
    assert said(pod, "Initialized") == said(pod, "Ready") == ("PodCompleted", "")


async def test_on_failure_one_container_is_done_and_one_is_tried_again(node: Node) -> None:
    def again(pod: Object) -> bool:
        return bool(status_of(pod, "fails").get("restartCount"))

    pod = await node.wait_static("statuses-on-failure", again, "to try again", SOON)
    assert pod["status"]["phase"] == "Running"
    assert status_of(pod, "works")["state"]["terminated"]["reason"] == "Completed"
    assert status_of(pod, "works")["restartCount"] == 0
    assert said(pod, "ContainersReady")[0] == "ContainersNotReady"


async def test_the_termination_message_is_the_file(node: Node) -> None:
    pod = await node.wait_phase("statuses-message-file", "Failed", SOON)
    assert status_of(pod, "c")["state"]["terminated"]["message"] == "last words"


async def test_four_containers_share_12288_bytes_of_messages(node: Node) -> None:
    pod = await node.wait_phase("statuses-message-long", "Succeeded", SOON)
    lengths = [len(s["state"]["terminated"]["message"]) for s in pod["status"]["containerStatuses"]]
    assert lengths == [3072] * 4


async def test_without_a_file_a_failure_shows_the_log(node: Node) -> None:
    pod = await node.wait_phase("statuses-message-log", "Failed", SOON)
    assert status_of(pod, "c")["state"]["terminated"]["message"] == "from the log\n"


async def test_without_a_file_a_success_shows_nothing(node: Node) -> None:
    pod = await node.wait_phase("statuses-message-none", "Succeeded", SOON)
    assert "message" not in status_of(pod, "c")["state"]["terminated"]


async def test_what_is_not_ready_is_named_in_the_order_of_the_spec(node: Node) -> None:
    pod = await node.wait_phase("statuses-not-ready", "Running", SOON)
    assert said(pod, "Ready") == ("ContainersNotReady", "containers with unready status: [z a]")
    assert [s["name"] for s in pod["status"]["containerStatuses"]] == ["a", "fine", "z"]
    assert [s["ready"] for s in pod["status"]["containerStatuses"]] == [False, True, False]


async def test_one_container_without_an_image_keeps_the_pod_pending_and_not_the_other(node: Node) -> None:
    def half(pod: Object) -> bool:
        waiting = (status_of(pod, "c").get("state") or {}).get("waiting") or {}
        return waiting.get("reason") == "ErrImageNeverPull" and "running" in status_of(pod, "d")["state"]

    pod = await node.wait_static("statuses-no-image", half, "to be half up", SOON)
    assert pod["status"]["phase"] == "Pending"
    message = status_of(pod, "c")["state"]["waiting"]["message"]
    assert message == 'Container image "localhost/statuses/none:1" is not present with pull policy of Never'
    assert conditions(pod)["Initialized"] == conditions(pod)["PodReadyToStartContainers"] == "True"


async def test_resources_as_allocated(node: Node) -> None:
    pod = await node.wait_phase("statuses-resources", "Running", SOON)
    shown = status_of(pod, "c")
    assert shown["resources"] == {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}}
    assert shown["allocatedResources"] == {"cpu": "10m", "memory": "8Mi"}
    assert pod["status"]["qosClass"] == "Burstable"


async def test_mounts(node: Node) -> None:
    pod = await node.wait_phase("statuses-mounts", "Running", SOON)
    assert status_of(pod, "c")["volumeMounts"] == [
        {"name": "shared", "mountPath": "/shared"},
        {"name": "shared", "mountPath": "/again", "readOnly": True, "recursiveReadOnly": "Disabled"},
    ]


async def test_a_readiness_gate_that_somebody_opens(node: Node) -> None:
    name = GATED

    def waits(pod: Object) -> bool:
        return condition_of(pod, "Ready").get("reason") == "ReadinessGatesNotReady"

    pod = await node.wait_pod(name, waits, "to wait for its gate", SOON)
    assert conditions(pod)["ContainersReady"] == "True"
    assert said(pod, "Ready")[1] == 'corresponding condition of pod readiness gate "example.com/gate" does not exist.'
    gate = {"type": "example.com/gate", "status": "True"}
    path = paths.pod_status("default", name)
    await node.plane.admin.patch(path, {"status": {"conditions": [gate]}})
    pod = await node.wait_pod(name, lambda p: conditions(p)["Ready"] == "True", "to be ready", SOON)
    assert conditions(pod)["example.com/gate"] == "True"


async def test_all_containers_restart_in_place(node: Node) -> None:
    name = "statuses-all-restart"

    def again(pod: Object) -> bool:
        return all(status_of(pod, each).get("restartCount") == 1 for each in ("setup", "other", "trigger"))

    await node.wait_static(name, again, "to restart all its containers", SOON)
    pod = await node.wait_static(name, lambda p: conditions(p)["Ready"] == "True", "to be ready again", SOON)
    for each in ("setup", "other", "trigger"):
        assert status_of(pod, each)["lastState"]["terminated"]["reason"] == "RestartingAllContainers", each
    assert conditions(pod)["AllContainersRestarting"] == "False"
    runtime = await node.agent.runtime_pod(name)
    assert runtime is not None and len(runtime.sandboxes) == 1


async def test_what_a_static_pod_shows_its_mirror_shows(node: Node) -> None:
    mirror = await node.wait_pod(
        f"statuses-init-fails-{NODE}", lambda p: p["status"].get("phase") == "Failed", "to show it", SOON
    )
    assert status_of(mirror, "setup")["state"]["terminated"]["exitCode"] == 3
