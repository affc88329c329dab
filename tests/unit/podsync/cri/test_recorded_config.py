"""The messages for every recorded pod equal those a Go kubelet sent for it: all but ids and times, which come from the
recording, as do the mounted volumes and the name of the termination-message file."""

from typing import Any

import pytest
from cri_api.v1 import api_pb2
from google.protobuf.json_format import ParseDict

from services.podsync.core.cri.config_errors import SandboxConfigError
from services.podsync.core.cri.container_config import container_config
from services.podsync.core.cri.container_inputs import ContainerInputs
from services.podsync.core.cri.container_mounts import MountedVolume
from services.podsync.core.cri.environment import ReferencedObject
from services.podsync.core.cri.sandbox_config import sandbox_config
from services.podsync.core.cri.service_environment import service_environment
from shared.cri.interface import ImageStatus, Message
from tests.support.recorded.differences import assert_same
from tests.support.recorded.pods import (
    IMAGE_USERS,
    NAMES,
    NODE,
    calls,
    in_any_order,
    options_in_any_order,
    pod_of,
    recorded_container,
    recorded_sandbox,
    recording,
)

NEVER_RAN = {
    "forbidden-sysctl": "refused at admission",
    "node-selector-mismatch": "refused at admission",
    "out-of-cpu": "refused at admission",
    "proc-unmasked": "no sandbox: the runtime has no user namespaces",
    "user-namespace": "no sandbox: the runtime has no user namespaces",
}
NO_CONTAINER = {
    "bad-image-name": "no container was created: the image's name is no name",
    "image-absent": "no container was created: the image could not be pulled",
    "image-never-absent": "no container was created: the image may not be pulled",
    "missing-configmap-env": "no container was created: the ConfigMap is missing",
}
KUBERNETES = {
    "metadata": {"name": "kubernetes", "namespace": "default"},
    "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]},
}
REFERENCES = {
    ("ConfigMap", "cm"): ReferencedObject({"data": {"k1": "v1", "k2": "v2"}}),
    ("ConfigMap", "nope"): ReferencedObject(None, not_found=True, error='configmap "nope" not found'),
    ("Secret", "sec"): ReferencedObject({"data": {"pw": "czNjcmV0"}}),
}
SANDBOXES = [name for name in NAMES if name not in NEVER_RAN]
CONTAINERS = [name for name in SANDBOXES if name not in NO_CONTAINER]


def built_sandbox(recorded: dict[str, Any], request: dict[str, Any]) -> Message:
    """Our message for the sandbox of a recorded request."""
    attempt = request["metadata"].get("attempt", 0)
    return options_in_any_order(sandbox_config(pod_of(recorded), facts=NODE, attempt=attempt))


def built_container(recorded: dict[str, Any], wanted: Message) -> Message:
    """Our message for the container of a recorded CreateContainer."""
    pod = pod_of(recorded)
    every = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    container = next(c for c in every if c["name"] == wanted["metadata"]["name"])
    uid, mounts = pod["metadata"]["uid"], wanted["mounts"]
    on_host = {mount["container_path"]: mount.get("host_path", "") for mount in mounts}
    pulled = {mount["container_path"]: mount["image"]["image"] for mount in mounts if "image" in mount}
    images = {
        mount["name"]: pulled[mount["mountPath"]] for mount in container["volumeMounts"] if mount["mountPath"] in pulled
    }
    volumes = {
        mount["name"]: MountedVolume(
            host_path=f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~projected/{mount['name']}"
        )
        for mount in container["volumeMounts"]
    }
    subpaths = {
        index: f"/var/lib/kubelet/pods/{uid}/volume-subpaths/{mount['name']}/{container['name']}/{index}"
        for index, mount in enumerate(container["volumeMounts"])
        if "subPathExpr" in mount
    }
    return container_config(
        pod,
        container,
        ContainerInputs(
            restart_count=wanted["metadata"].get("attempt", 0),
            image_ref=wanted["image"]["image"],
            image=ImageStatus(id=wanted["image"]["image"], size=1, uid=IMAGE_USERS.get(recorded["name"])),
            pod_ips=(recorded["api_pod"].get("status", {}).get("podIP", "10.88.2.159"),),
            volumes=volumes,
            subpaths=subpaths,
            etc_hosts_path=f"/var/lib/kubelet/pods/{uid}/etc-hosts",
            termination_path=on_host["/dev/termination-log"],
            service_env=service_environment([KUBERNETES], "rec", links=True),
            references=REFERENCES,
            image_volumes=images,
        ),
        facts=NODE,
    )


def test_every_recording_is_compared_or_has_its_reason() -> None:
    assert len(NAMES) == 39
    assert {*CONTAINERS, *NEVER_RAN, *NO_CONTAINER} == set(NAMES)
    for name in NEVER_RAN:
        assert not calls(recording(name), "RunPodSandbox"), name
    for name in NO_CONTAINER:
        assert not calls(recording(name), "CreateContainer"), name
    for name in CONTAINERS:
        assert calls(recording(name), "CreateContainer"), name


def test_the_sandbox_is_asked_for_as_the_kubelet_asked(subtests: pytest.Subtests) -> None:
    for name in SANDBOXES:
        with subtests.test(name):
            recorded = recording(name)
            for request in calls(recorded, "RunPodSandbox"):
                assert_same(built_sandbox(recorded, request["config"]), recorded_sandbox(request["config"]))


def test_the_container_is_asked_for_as_the_kubelet_asked(subtests: pytest.Subtests) -> None:
    for name in CONTAINERS:
        with subtests.test(name):
            recorded = recording(name)
            for request in calls(recorded, "CreateContainer"):
                wanted = recorded_container(request["config"])
                assert_same(in_any_order(built_container(recorded, wanted)), wanted)
                assert_same(
                    built_sandbox(recorded, request["sandbox_config"]), recorded_sandbox(request["sandbox_config"])
                )


@pytest.mark.long
def test_the_runtime_interface_accepts_the_messages(subtests: pytest.Subtests) -> None:
    for name in CONTAINERS:
        with subtests.test(name):
            recorded = recording(name)
            sandbox = ParseDict(sandbox_config(pod_of(recorded), facts=NODE, attempt=0), api_pb2.PodSandboxConfig())
            assert sandbox.metadata.uid == recorded["api_pod"]["metadata"]["uid"]
            assert sandbox.linux.HasField("overhead")
            for request in calls(recorded, "CreateContainer"):
                built = ParseDict(
                    built_container(recorded, recorded_container(request["config"])), api_pb2.ContainerConfig()
                )
                assert built.linux.security_context.HasField("run_as_user")


@pytest.mark.parametrize("name", ["proc-unmasked", "user-namespace"])
def test_a_sandbox_the_kubelet_refused_is_refused_with_its_words(name: str) -> None:
    recorded = recording(name)
    with pytest.raises(SandboxConfigError) as refused:
        sandbox_config(pod_of(recorded), facts=NODE, attempt=0)
    event = next(event for event in recorded["events"] if event["reason"] == "FailedCreatePodSandBox")
    assert event["message"] == f"Failed to create pod sandbox: {refused.value}"
