"""A manifest becomes the pod this node runs: defaulted, named, identified, or refused in words."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.objects import Object, annotations, name, namespace, uid
from shared.podspec.defaults import apply_defaults
from shared.podspec.pod_source import MIRROR, is_critical, is_mirror, is_node_critical, is_static, seen_text, with_seen
from shared.podspec.static_pod import MAX_POD_BYTES, InvalidPod, static_pod

RECORDINGS = Path(__file__).parents[2] / "recordings"
ADMISSION = {"preemptionPolicy", "priority", "serviceAccount", "serviceAccountName", "tolerations", "volumes"}


def manifest(**spec: Any) -> Object:
    containers = [{"name": "c", "image": "busybox:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": containers, **spec}}


def made(
    document: object, *, node_name: str = "Node1", source: str = "file", origin: str = "/etc/m/web.yaml"
) -> Object:
    return static_pod(document, node_name=node_name, source=source, origin=origin)


def test_many_mistakes_are_a_short_text() -> None:
    with pytest.raises(InvalidPod) as error:
        made(manifest(nodeSelector={f"k{number}": "=" for number in range(10_000)}))
    assert str(error.value).endswith(", and 9980 more errors]")
    assert len(str(error.value)) < 20_000


@pytest.mark.long
def test_a_pod_that_is_larger_than_a_message_may_be_is_refused() -> None:
    spec = manifest()["spec"]["containers"][0] | {"args": ["x" * MAX_POD_BYTES]}
    with pytest.raises(InvalidPod, match=f"bytes with defaults, {MAX_POD_BYTES} are the most"):
        made(manifest(containers=[spec]))


def test_a_minimal_manifest_becomes_a_whole_pod() -> None:
    pod = made(manifest())
    assert (name(pod), namespace(pod)) == ("web-node1", "default")
    assert len(uid(pod)) == 32
    assert set(uid(pod)) <= set("0123456789abcdef")
    assert annotations(pod) == {"kubernetes.io/config.hash": uid(pod), "kubernetes.io/config.source": "file"}
    assert pod["status"] == {"phase": "Pending"}
    assert pod["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "busybox:1",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {},
            }
        ],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        "nodeName": "Node1",
        "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
    }


def test_the_manifest_itself_is_left_alone() -> None:
    document = manifest(volumes=[{"name": "v"}])
    before = copy.deepcopy(document)
    made(document)
    assert document == before


def test_the_uid_depends_on_content_node_and_origin_alone() -> None:
    pod = made(manifest())
    reordered = dict(reversed(list(manifest().items())))
    assert uid(made(reordered)) == uid(pod)
    assert uid(made({**manifest(), "status": None})) == uid(pod)
    assert uid(made(manifest(restartPolicy="Always"))) == uid(pod), "a default written out is the same pod"
    others = {
        uid(pod),
        uid(made(manifest(restartPolicy="Never"))),
        uid(made(manifest(), node_name="node2")),
        uid(made(manifest(), origin="/etc/m/other.yaml")),
        uid(made(manifest(), source="http", origin="/etc/m/web.yaml")),
    }
    assert len(others) == 5


def test_an_explicit_uid_is_kept() -> None:
    document = manifest()
    document["metadata"]["uid"] = "my-uid"
    pod = made(document)
    assert uid(pod) == annotations(pod)["kubernetes.io/config.hash"] == "my-uid"


def test_only_file_pods_tolerate_no_execute() -> None:
    assert "tolerations" not in made(manifest(), source="http", origin="http://x/")["spec"]


def test_defaults_are_those_of_the_api_server(subtests: pytest.Subtests) -> None:
    for file in sorted(RECORDINGS.glob("*.json")):
        with subtests.test(file.stem):
            recorded = json.loads(file.read_text())
            pod = {"spec": {key: value for key, value in recorded["submitted"]["spec"].items() if value is not None}}
            for container in pod["spec"]["containers"]:
                container.pop("command") if container.get("command", ()) is None else None
            apply_defaults(pod)
            wanted = recorded["api_pod"]["spec"]
            own = {volume["name"] for volume in pod["spec"].get("volumes", ())}
            assert pod["spec"].get("volumes", []) == [volume for volume in wanted["volumes"] if volume["name"] in own]
            for container in [*wanted["containers"], *wanted.get("initContainers", ())]:
                mounts = [mount for mount in container.pop("volumeMounts") if mount["name"] in own]
                container.update({"volumeMounts": mounts} if mounts else {})
            assert {k: v for k, v in pod["spec"].items() if k not in ADMISSION} == {
                k: v for k, v in wanted.items() if k not in ADMISSION
            }


def test_defaulting_twice_changes_nothing_more() -> None:
    pod = manifest(
        hostNetwork=True,
        volumes=[{"name": "a"}, {"name": "b", "hostPath": {"path": "/x"}}, {"name": "i", "image": {"reference": "x"}}],
        resources={"limits": {"cpu": 1, "memory": "1024Mi"}},
    )
    pod["spec"]["containers"][0] |= {
        "image": "busybox",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": 0.5, "memory": "0.5Gi"}, "requests": {"cpu": "0.0001"}},
        "livenessProbe": {"httpGet": {"port": 80}},
        "startupProbe": {"grpc": {"port": 1}},
        "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    apply_defaults(pod)
    once = copy.deepcopy(pod)
    apply_defaults(pod)
    assert pod == once
    container = pod["spec"]["containers"][0]
    assert container["imagePullPolicy"] == "Always"
    assert container["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert container["resources"] == {
        "limits": {"cpu": "500m", "memory": "512Mi"},
        "requests": {"cpu": "1m", "memory": "512Mi"},
    }
    assert container["livenessProbe"]["httpGet"] == {"port": 80, "path": "/", "scheme": "HTTP"}
    assert container["startupProbe"]["grpc"] == {"port": 1, "service": ""}
    assert pod["spec"]["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "hostPath": {"path": "/x", "type": ""}},
        {"name": "i", "image": {"reference": "x", "pullPolicy": "Always"}},
    ]
    assert pod["spec"]["resources"]["requests"] == {"cpu": "1m", "memory": "512Mi"}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("localhost:5000/busybox", "Always"),
        ("localhost:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:0", "IfNotPresent"),
        ("busybox:latest@sha256:0", "Always"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    pod = manifest()
    pod["spec"]["containers"][0]["image"] = image
    assert made(pod)["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, "invalid pod: the document is empty, not an object of kind Pod"),
        ("kind: Pod", "invalid pod: the document is a bare value, not an object of kind Pod"),
        ([manifest()], "invalid pod: the document is a list, not an object of kind Pod"),
        ({}, "invalid pod: apiVersion null, kind null; must be v1 and Pod"),
        ({**manifest(), "kind": "Service"}, 'invalid pod: apiVersion "v1", kind "Service"; must be v1 and Pod'),
        ({"apiVersion": "v1", "kind": "Pod"}, "invalid pod: name is needed for the pod"),
        (
            {**manifest(), "metadata": {"name": "web", "annotations": {MIRROR: "1"}}},
            f"invalid pod: metadata.annotations[{MIRROR}]: Forbidden: it marks a mirror pod (remove it)",
        ),
        ({**manifest(), "metadata": []}, 'invalid pod: [metadata: Invalid value: "array": must be an object]'),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}},
            "invalid pod: [spec.containers: Required value]",
        ),
        (manifest(containers=[{"name": "c"}]), "invalid pod: [spec.containers[0].image: Required value]"),
        (
            {**manifest(), "metadata": {"name": "x", "labels": {1: "y"}}},
            "invalid pod: [metadata.labels: Invalid value: 1: field names must be strings; quote it]",
        ),
    ],
)
def test_what_is_no_pod_is_refused_in_one_line(document: object, text: str) -> None:
    with pytest.raises(InvalidPod) as refused:
        made(document)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("a\0b", "must not contain NUL characters"),
        ("\ud800", "must be Unicode text"),
        (float("inf"), "must be a finite number"),
        (1 << 20000, "must fit into 64 bits"),
        (b"bytes", "must be a plain value; quote it"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_could_not_travel_are_refused_even_in_unknown_fields(value: object, why: str) -> None:
    with pytest.raises(InvalidPod, match=f"spec.futureField: Invalid value: .*: {why}"):
        made(manifest(futureField=value))


def test_an_unknown_field_survives() -> None:
    assert made(manifest(futureField={"a": [1]}))["spec"]["futureField"] == {"a": [1]}


def test_a_document_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidPod, match="Too deep"):
        made(manifest(affinity=endless))


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"serviceAccountName": "sa"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "secrets"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "secrets"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}, "secrets"),
        ({"volumes": [{"name": "v", "secret": {}}]}, "secrets (via secret volumes)"),
        ({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, "configmaps"),
        ({"resourceClaims": [{"name": "r"}]}, "resourceclaims"),
        ({"volumes": [{"name": "v", "csi": {"driver": "d"}}]}, "csidrivers (via CSI volumes)"),
        ({"volumes": [{"name": "v", "glusterfs": {}}]}, "endpoints (via glusterFS volumes)"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "p"}}]}, "persistentvolumeclaims"),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "persistentvolumeclaims (via ephemeral volumes)"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "serviceaccounts (via projected volumes)",
        ),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]},
            "clustertrustbundles",
        ),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": {}}]}}]}, "podcertificates"),
    ],
)
def test_a_static_pod_may_name_no_api_object(spec: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidPod) as refused:
        made(manifest(**spec))
    assert str(refused.value) == f"static pods may not reference {what}"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, "secrets"),
        ({"env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}, "configmaps"),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, "secrets"),
        ({"envFrom": [{"configMapRef": {"name": "s"}}]}, "configmaps"),
    ],
)
def test_nor_may_its_environment(source: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidPod, match=f"static pods may not reference {what}"):
        made(manifest(initContainers=[{"name": "i", "image": "x:1", **source}]))


def test_a_projected_downward_volume_is_allowed() -> None:
    items = [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]
    projected = {"sources": [{"downwardAPI": {"items": items}}]}
    volume = made(manifest(volumes=[{"name": "v", "projected": projected}]))["spec"]["volumes"][0]
    assert volume["projected"]["defaultMode"] == 0o644
    assert volume["projected"]["sources"][0]["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"] == "v1"


def test_static_mirror_and_critical_pods_are_distinguished() -> None:
    pod = made(manifest(priorityClassName="system-node-critical"))
    assert is_static(pod)
    assert is_critical(pod)
    assert is_node_critical(pod)
    from_api: Object = {"metadata": {"annotations": {"kubernetes.io/config.source": "api"}}, "spec": {"priority": 1}}
    assert not is_static(from_api)
    assert not is_critical(from_api)
    assert is_critical({"metadata": {}, "spec": {"priority": 2_000_000_000}})
    assert is_mirror({"metadata": {"annotations": {"kubernetes.io/config.mirror": "h"}}})


def test_the_moment_seen_has_nine_digits_and_the_local_offset() -> None:
    assert seen_text(1_766_000_000_000_000_001, 0) == "2025-12-17T19:33:20.000000001Z"
    assert seen_text(1_766_000_000_120_000_000, 3600) == "2025-12-17T20:33:20.120000000+01:00"
    pod = made(manifest())
    seen = with_seen(pod, "then")
    assert annotations(seen)["kubernetes.io/config.seen"] == "then"
    assert uid(seen) == uid(pod)
    assert "kubernetes.io/config.seen" not in annotations(pod)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "containers",
        "initContainers",
        "volumes",
        "securityContext",
        "dnsConfig",
        "hostAliases",
        "resources",
        "tolerations",
    ]
)
CONTAINER_FIELDS = st.sampled_from(
    ["name", "image", "command", "env", "envFrom", "ports", "resources", "volumeMounts", "livenessProbe", "lifecycle"]
)


@pytest.mark.long
@given(FIELDS, JSON, CONTAINER_FIELDS, JSON)
def test_no_manifest_raises_anything_but_invalid_pod(field: str, value: Any, inner: str, other: Any) -> None:
    document = manifest(**{field: value})
    if isinstance(document["spec"]["containers"], list) and document["spec"]["containers"]:
        first = document["spec"]["containers"][0]
        if isinstance(first, dict):
            first[inner] = [other] if inner != "resources" else {"limits": other}
    try:
        made(document)
    except InvalidPod as refused:
        assert "\n" not in str(refused)
