"""Where variables come from and what commands make of them, read from /proc/1/environ and from what commands print."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.agent import NODE
from tests.behaviour import Node, container, pod_of, status_of
from tools.oci_image import BUSYBOX_IMAGE

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


def from_(name: str, **source: Any) -> Object:
    return {"name": name, "valueFrom": source}


def field(name: str, path: str) -> Object:
    return from_(name, fieldRef={"fieldPath": path})


def amount(name: str, resource: str, divisor: str = "1", **of: str) -> Object:
    return from_(name, resourceFieldRef={"resource": resource, "divisor": divisor, **of})


DOWNWARD = [
    field("NAME", "metadata.name"),
    field("SPACE", "metadata.namespace"),
    field("ID", "metadata.uid"),
    field("LABEL", "metadata.labels['tier']"),
    field("NOTE", "metadata.annotations['spec/note']"),
    field("NODE", "spec.nodeName"),
    field("POD_IP", "status.podIP"),
    field("POD_IPS", "status.podIPs"),
    field("HOST_IP", "status.hostIP"),
]
AMOUNTS = [
    amount("CPU", "requests.cpu", "1m"),
    amount("CPUS", "requests.cpu"),
    amount("MEMORY", "limits.memory", "1Mi"),
    amount("OTHER", "limits.memory", "1Ki", containerName="other"),
]
WORDS = [
    {"name": "A", "value": "a"},
    {"name": "B", "value": "<$(A)>"},
    {"name": "LATER", "value": "$(Z)"},
    {"name": "TWICE", "value": "$$(A)"},
    {"name": "EMPTY", "value": ""},
    {"name": "A2", "value": "1"},
    {"name": "A2", "value": "$(A2)2"},
    {"name": "Z", "value": "z"},
]
FILES = [from_(name, fileKeyRef={"volumeName": "v", "path": "made/a.env", "key": name}) for name in ("F", "LINES")]
ABSENT = from_("ABSENT", fileKeyRef={"volumeName": "v", "path": "made/a.env", "key": "ABSENT", "optional": True})
WRITE = """mkdir -p /v/made; cat > /v/made/a.env <<'X'
# made by the init container
F='from a file'
LINES='one
two'
X
ln -s /etc/passwd /v/made/out"""
V = [{"name": "v", "mountPath": "/v"}]


def annotated(pod: Object) -> Object:
    return {
        **pod,
        "metadata": {**pod["metadata"], "labels": {"tier": "front"}, "annotations": {"spec/note": 'say "x"'}},
    }


STATIC = {
    "spec-downward": annotated(
        pod_of(
            "spec-downward",
            container("c", env=DOWNWARD),
            container(
                "amounts",
                env=AMOUNTS,
                resources={"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "33Mi"}},
            ),
            container("other", resources={"limits": {"memory": "16Mi"}}),
        )
    ),
    "spec-words": pod_of(
        "spec-words",
        container("c", env=WORDS),
        {
            "name": "args",
            "image": BUSYBOX_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", 'for word; do echo "$word"; done; exec sleep 1000000', "$(A)"],
            "args": ["$(A)", "$$(A)", "$(NONE)", "$A", "a b"],
            "env": [{"name": "A", "value": "x y"}],
        },
        container("where", "pwd; exec sleep 1000000", workingDir="/made/for/it"),
        container("reads", "read line; echo got $line; exec sleep 1000000", stdin=True),
        container("closed", "read line || echo nothing to read; exec sleep 1000000"),
        container("terminal", "tty; exec sleep 1000000", tty=True, stdin=True),
    ),
    "spec-file": pod_of(
        "spec-file",
        container("c", env=[*FILES, ABSENT], volumeMounts=V),
        container(
            "lacks", env=[from_("G", fileKeyRef={"volumeName": "v", "path": "made/a.env", "key": "G"})], volumeMounts=V
        ),
        container(
            "out", env=[from_("G", fileKeyRef={"volumeName": "v", "path": "made/out", "key": "root"})], volumeMounts=V
        ),
        initContainers=[container("setup", WRITE, volumeMounts=V)],
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
}
OBJECTS: list[Object] = [
    {"kind": "ConfigMap", "metadata": {"name": "spec-map"}, "data": {"M": "map", "BOTH": "map", "dotted.key": "d"}},
    {"kind": "Secret", "metadata": {"name": "spec-secret"}, "stringData": {"BOTH": "secret", "PW": "s3$(M)"}},
    {"kind": "Service", "metadata": {"name": "spec-svc"}, "spec": {"ports": [{"name": "db", "port": 6379}]}},
]
FROM = [
    {"configMapRef": {"name": "spec-map"}},
    {"prefix": "P_", "secretRef": {"name": "spec-secret"}},
    {"secretRef": {"name": "spec-secret"}},
    {"configMapRef": {"name": "spec-none", "optional": True}},
]
KEYS = [
    from_("KEY", configMapKeyRef={"name": "spec-map", "key": "dotted.key"}),
    from_("NO_KEY", secretKeyRef={"name": "spec-secret", "key": "none", "optional": True}),
    {"name": "M", "value": "own $(BOTH) $(KEY)"},
]


def api_pod(name: str, **fields: Any) -> Object:
    return pod_of(name, container("c", **fields.pop("container", {})), nodeName=NODE, **fields)


API = [
    api_pod("spec-objects", container={"envFrom": FROM, "env": KEYS}),
    api_pod("spec-no-links", enableServiceLinks=False),
    api_pod("spec-no-secret", container={"env": [from_("S", secretKeyRef={"name": "spec-none", "key": "k"})]}),
    api_pod("spec-no-key", container={"env": [from_("S", configMapKeyRef={"name": "spec-map", "key": "none"})]}),
]


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    for thing in OBJECTS:
        await node.create({"apiVersion": "v1", **thing})
    node.put(STATIC)
    for pod in API:
        await node.create(pod)
    yield
    for pod in API:
        await node.delete_pod(pod["metadata"]["name"], grace=1)
    await node.take_away(STATIC)
    await node.wait_gone(*(pod["metadata"]["name"] for pod in API))


async def environment(node: Node, pod: str, name: str = "c") -> dict[str, str]:
    """/proc/1/environ of a container of a static pod, once it runs."""
    await node.wait_static(pod, lambda p: "running" in (status_of(p, name).get("state") or {}), f"{name} to run")
    return environ(await node.inside(pod, name, "cat", "/proc/1/environ"))


def environ(text: str) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)


async def api_environment(node: Node, name: str) -> dict[str, str]:
    """The same for a pod of the API server."""
    await node.wait_ready(name)
    pod = await node.get_pod(name)
    assert pod is not None
    container_id = status_of(pod, "c")["containerID"].removeprefix("containerd://")
    # Not process 1, which is a shell and drops what it cannot name.
    found = await node.agent.runtime.exec_sync(container_id, ("cat", "/proc/self/environ"), 10)
    return environ(found.stdout.decode())


async def test_what_the_pod_is(node: Node) -> None:
    found = await environment(node, "spec-downward")
    pod = await node.wait_phase("spec-downward", "Running")
    assert (found["NAME"], found["SPACE"], found["NODE"]) == (f"spec-downward-{NODE}", "default", NODE)
    assert (found["ID"], found["LABEL"], found["NOTE"]) == (pod["metadata"]["uid"], "front", 'say "x"')


async def test_where_the_pod_is(node: Node) -> None:
    found = await environment(node, "spec-downward")
    status = (await node.wait_phase("spec-downward", "Running"))["status"]
    assert (found["POD_IP"], found["POD_IPS"]) == (status["podIP"], status["podIPs"][0]["ip"])
    assert found["HOST_IP"] == status["hostIP"]


async def test_what_the_container_may_use(node: Node) -> None:
    found = await environment(node, "spec-downward", "amounts")
    assert {key: found[key] for key in ("CPU", "CPUS", "MEMORY", "OTHER")} == {
        "CPU": "250",
        "CPUS": "1",
        "MEMORY": "33",
        "OTHER": "16384",
    }


async def test_variables_by_variables(node: Node) -> None:
    found = await environment(node, "spec-words")
    wanted = {"A": "a", "B": "<a>", "LATER": "$(Z)", "TWICE": "$(A)", "EMPTY": "", "A2": "12", "Z": "z"}
    assert {key: found.get(key) for key in wanted} == wanted


async def test_the_environment_of_the_image_stays(node: Node) -> None:
    assert (await environment(node, "spec-words"))["PATH"] == "/bin"


async def lines(node: Node, name: str, count: int) -> list[str]:
    """The first lines the container wrote."""

    async def enough() -> list[str]:
        written = await node.log("spec-words", name)
        return written if len(written) >= count else []

    found: list[str] = await node.wait_for(enough, f"{count} lines of {name}")
    return found[:count]


async def test_arguments_are_expanded_one_by_one(node: Node) -> None:
    assert await lines(node, "args", 5) == ["x y", "$(A)", "$(NONE)", "$A", "a b"]


async def test_a_working_directory_is_made(node: Node) -> None:
    assert await lines(node, "where", 1) == ["/made/for/it"]


async def test_standard_input_is_open_where_asked_for(node: Node) -> None:
    await environment(node, "spec-words", "reads")
    assert await node.log("spec-words", "reads") == []


async def test_standard_input_is_at_its_end_otherwise(node: Node) -> None:
    assert await lines(node, "closed", 1) == ["nothing to read"]


async def test_a_terminal_where_asked_for(node: Node) -> None:
    assert (await lines(node, "terminal", 1))[0].strip().startswith("/dev/")


async def test_variables_from_a_file_that_an_init_container_made(node: Node) -> None:
    found = await environment(node, "spec-file")
    assert (found["F"], found["LINES"]) == ("from a file", "one\ntwo")
    assert "ABSENT" not in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lacks", 'environment variable key "G" not found in file "made/a.env"'),
        ("out", "couldn't parse env file"),  # the link leads to no file of the volume, and never to the node's
    ],
)
async def test_a_variable_that_its_file_has_not(node: Node, name: str, text: str) -> None:
    def refused(pod: Object) -> bool:
        waiting = (status_of(pod, name).get("state") or {}).get("waiting") or {}
        return bool(waiting.get("reason") == "CreateContainerConfigError")

    pod = await node.wait_static("spec-file", refused, f"{name} to be refused")
    assert status_of(pod, name)["state"]["waiting"]["message"] == text


async def test_variables_from_config_maps_and_secrets(node: Node) -> None:
    found = await api_environment(node, "spec-objects")
    wanted = {
        "BOTH": "secret",
        "dotted.key": "d",
        "PW": "s3$(M)",
        "P_BOTH": "secret",
        "P_PW": "s3$(M)",
        "KEY": "d",
        "M": "own secret d",
    }
    assert {key: found.get(key) for key in wanted} == wanted
    assert "NO_KEY" not in found


async def test_variables_of_services(node: Node) -> None:
    found = await api_environment(node, "spec-objects")
    address = found["SPEC_SVC_SERVICE_HOST"]
    assert (found["SPEC_SVC_SERVICE_PORT"], found["SPEC_SVC_SERVICE_PORT_DB"]) == ("6379", "6379")
    assert found["SPEC_SVC_PORT_6379_TCP"] == f"tcp://{address}:6379"
    assert found["KUBERNETES_SERVICE_PORT"] == "443"


async def test_no_variables_of_services_but_of_the_api_server(node: Node) -> None:
    found = await api_environment(node, "spec-no-links")
    assert found["KUBERNETES_SERVICE_PORT"] == "443"
    assert not [key for key in found if key.startswith("SPEC_SVC")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spec-no-secret", 'secret "spec-none" not found'),
        ("spec-no-key", "couldn't find key none in ConfigMap default/spec-map"),
    ],
)
async def test_a_variable_that_cannot_be_had_holds_its_container_back(node: Node, name: str, text: str) -> None:
    def refused(pod: Object) -> bool:
        waiting = (status_of(pod, "c").get("state") or {}).get("waiting") or {}
        return waiting.get("reason") == "CreateContainerConfigError" and waiting.get("message") == text

    pod = await node.wait_pod(name, refused, "to be refused")
    assert pod["status"]["phase"] == "Pending"
    told = [(event["reason"], event["message"]) for event in await node.events_of(name)]
    assert ("Failed", f"Error: {text}") in told
