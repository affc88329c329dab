"""Probes on a real node: every kind with every handler, thresholds, gates, restarts, and their events."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.support.agents.behaviour import Node, container, pod_of, status_of
from tests.support.runtime.probe_target import TARGET_IMAGE, target_image

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

ALIVE = {"command": ["test", "!", "-e", "/tmp/dead"]}
GOES_AT_ONCE = "trap 'exit 0' TERM; while true; do sleep 0.2; done"
HTTPD = "mkdir -p /tmp/w; echo -n hello > /tmp/w/ok; exec httpd -f -p 8080 -h /tmp/w"


def probe(handler: str, action: Any, **fields: Any) -> Object:
    return {handler: action, "periodSeconds": 1, "timeoutSeconds": 60} | fields


def http(path: str, port: int | str = 8080, **fields: Any) -> Object:
    return probe("httpGet", {"path": path, "port": port}, **fields)


def target(name: str, port: int = 8000, **fields: Any) -> Object:
    """A container that answers gRPC health checks, GETs and connections."""
    own = {"name": name, "image": TARGET_IMAGE, "imagePullPolicy": "Never", "command": ["/bin/probe-target", str(port)]}
    return own | fields


def grpc(service: str = "", port: int = 8000, **fields: Any) -> Object:
    return probe("grpc", {"port": port, **({"service": service} if service else {})}, **fields)


def command(*words: str, **fields: Any) -> Object:
    return probe("exec", {"command": list(words)}, **fields)


PODS = {
    pod["metadata"]["name"]: pod
    for pod in (
        # handlers, as readiness
        pod_of("probes-exec", container("c", readinessProbe=command("test", "-e", "/tmp/ready"))),
        pod_of("probes-http", container("c", HTTPD, readinessProbe=http("/ok"))),
        pod_of("probes-grpc", target("c", readinessProbe=grpc("file"))),
        pod_of(
            "probes-host",
            target("c", 28471, readinessProbe=probe("tcpSocket", {"port": 28471})),
            hostNetwork=True,
        ),
        # failures and their words
        pod_of("probes-http-refused", container("c", readinessProbe=http("/", 81))),
        pod_of(
            "probes-exec-slow",
            container("c", readinessProbe=command("sleep", "60", timeoutSeconds=1)),
        ),
        pod_of("probes-exec-missing", container("c", readinessProbe=command("/no/such"))),
        # liveness
        pod_of("probes-live-exec", container("c", livenessProbe=probe("exec", ALIVE, failureThreshold=2))),
        pod_of(
            "probes-live-grace",
            container(
                "c",
                f"if [ -e /m/x ]; then {GOES_AT_ONCE}; fi; touch /m/x; trap '' TERM; while true; do sleep 1; done",
                # Fails once: the second attempt stays, however late it is looked at.
                livenessProbe=command(
                    *("sh", "-c", "[ -e /m/failed ] || { touch /m/failed; false; }"),
                    failureThreshold=1,
                    terminationGracePeriodSeconds=1,
                ),
                volumeMounts=[{"name": "m", "mountPath": "/m"}],
            ),
            volumes=[{"name": "m", "emptyDir": {}}],
            grace=300,  # of which the first attempt, deaf to TERM, would have all
        ),
        # startup
        pod_of(
            "probes-start",
            container(
                "c",
                startupProbe=command("test", "-e", "/tmp/up", failureThreshold=1000),
                livenessProbe=command("test", "-e", "/tmp/up", failureThreshold=1),
                readinessProbe=command("true", periodSeconds=600),
            ),
        ),
        # sidecars
        pod_of(
            "probes-sidecar",
            container("c"),
            initContainers=[
                target(
                    "side",
                    restartPolicy="Always",
                    ports=[{"name": "up", "containerPort": 8000}],
                    startupProbe=probe("tcpSocket", {"port": "up"}),
                    readinessProbe=grpc("file"),
                    livenessProbe=http("/", "up"),
                )
            ],
        ),
    )
}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    await node.agent.import_images((target_image(),))
    node.put(PODS)
    yield
    await node.take_away(PODS)


async def wait_ready(node: Node, name: str, ready: bool = True, container_name: str = "c") -> Object:
    def holds(pod: Object) -> bool:
        found = status_of(pod, container_name)
        return bool(found.get("state", {}).get("running")) and found["ready"] is ready

    return await node.wait_static(name, holds, f"to be {'ready' if ready else 'unready'}")


async def wait_restart(node: Node, name: str) -> Object:
    return await node.wait_static(name, lambda pod: status_of(pod, "c").get("restartCount"), "to restart")


@pytest.mark.parametrize("name", ["http", "host"])
async def test_a_container_whose_probe_succeeds_is_ready(node: Node, name: str) -> None:
    pod = await wait_ready(node, f"probes-{name}")
    conditions = {c["type"]: c["status"] for c in pod["status"]["conditions"]}
    assert (conditions["Ready"], conditions["ContainersReady"]) == ("True", "True")


async def test_a_command_decides_over_readiness_in_both_directions(node: Node) -> None:
    pod = await wait_ready(node, "probes-exec", False)
    ready = next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ContainersNotReady")
    assert ready["message"] == "containers with unready status: [c]"
    await node.inside("probes-exec", "c", "touch", "/tmp/ready")
    await wait_ready(node, "probes-exec")
    await node.inside("probes-exec", "c", "rm", "/tmp/ready")
    pod = await wait_ready(node, "probes-exec", False)
    assert status_of(pod, "c")["restartCount"] == 0


async def test_grpc_health_decides_over_readiness_in_both_directions(node: Node) -> None:
    await wait_ready(node, "probes-grpc", False)
    text = 'Readiness probe failed: service unhealthy (responded with "NOT_SERVING")'
    assert (await node.wait_event("probes-grpc", "Unhealthy", text))[2] == "spec.containers{c}"
    await node.inside("probes-grpc", "c", "touch", "/tmp/serving")
    await wait_ready(node, "probes-grpc")
    await node.inside("probes-grpc", "c", "rm", "/tmp/serving")
    await wait_ready(node, "probes-grpc", False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("http-refused", 'Get "http://{ip}:81/": dial tcp {ip}:81: connect: connection refused'),
        ("exec-slow", 'command timed out: "sleep 60" timed out after 1s'),
    ],
)
async def test_the_event_of_a_failure_has_the_kubelets_text(node: Node, name: str, text: str) -> None:
    pod = await wait_ready(node, f"probes-{name}", False)
    text = text.replace("{ip}", pod["status"]["podIP"])
    event = await node.wait_event(f"probes-{name}", "Unhealthy", text)
    assert event[1:] == (f"Readiness probe failed: {text}", "spec.containers{c}")


async def test_a_probe_that_cannot_be_tried_has_no_result(node: Node) -> None:
    event = await node.wait_event("probes-exec-missing", "Unhealthy", "/no/such")
    assert event[1].startswith("Readiness probe errored and resulted in unknown state: ")
    await wait_ready(node, "probes-exec-missing", False)


async def test_a_failing_command_restarts_the_container_after_the_threshold(node: Node) -> None:
    pod = await node.wait_phase("probes-live-exec", "Running")
    first = status_of(pod, "c")["containerID"]
    await node.inside("probes-live-exec", "c", "touch", "/tmp/dead")
    pod = await wait_restart(node, "probes-live-exec")
    found = status_of(pod, "c")
    assert found["lastState"]["terminated"]["containerID"] == first and found["containerID"] != first
    killing = await node.wait_event("probes-live-exec", "Killing")
    assert killing[1:] == ("Container c failed liveness probe, will be restarted", "spec.containers{c}")
    unhealthy = [event for event in await node.events("probes-live-exec") if event[0] == "Unhealthy"]
    assert {event[1] for event in unhealthy} == {"Liveness probe failed: "}


async def test_the_grace_of_the_probe_wins_over_that_of_the_pod(node: Node) -> None:
    pod = await wait_restart(node, "probes-live-grace")
    shown = status_of(pod, "c")
    assert (shown["restartCount"], shown["lastState"]["terminated"]["exitCode"]) == (1, 137)


async def test_nothing_else_is_probed_before_the_startup_probe_succeeded(node: Node) -> None:
    await node.wait_event("probes-start", "Unhealthy", "Startup probe failed")
    pod = await wait_ready(node, "probes-start", False)
    assert status_of(pod, "c")["started"] is False
    await node.inside("probes-start", "c", "touch", "/tmp/up")
    pod = await wait_ready(node, "probes-start")  # at once, though its period is ten minutes
    assert (status_of(pod, "c")["started"], status_of(pod, "c")["restartCount"]) == (True, 0)
    assert {e[1].split()[0] for e in await node.events("probes-start") if e[0] == "Unhealthy"} == {"Startup"}


async def test_a_sidecar_is_probed_with_all_kinds_and_by_its_own_port_names(node: Node) -> None:
    await node.wait_static("probes-sidecar", lambda p: status_of(p, "c").get("ready"), "to run its container")
    pod = await wait_ready(node, "probes-sidecar", False, "side")
    assert status_of(pod, "side")["started"] is True
    event = await node.wait_event("probes-sidecar", "Unhealthy", "Readiness probe failed")
    assert event[2] == "spec.initContainers{side}"
    await node.inside("probes-sidecar", "side", "touch", "/tmp/serving")
    pod = await wait_ready(node, "probes-sidecar", True, "side")
    assert next(c["status"] for c in pod["status"]["conditions"] if c["type"] == "Ready") == "True"
