"""The rarer mistakes in a pod, each named with its field."""

from typing import Any

import pytest

from shared.model.objects import Object
from shared.podspec.defaults import apply_defaults
from shared.podspec.validation import validate_pod


def fields_refused(container: dict[str, Any] | None = None, **spec: Any) -> list[str]:
    """`<field path>: <kind of error>` of each message."""
    containers = [{"name": "c", "image": "busybox:1", **(container or {})}]
    metadata = spec.pop("metadata", {"name": "p", "namespace": "default"})
    pod: Object = {"metadata": metadata, "spec": {"containers": containers, "volumes": [{"name": "v"}], **spec}}
    apply_defaults(pod)
    return [": ".join(message.split(": ")[:2]) for message in validate_pod(pod)]


def env(**source: Any) -> dict[str, Any]:
    return {"env": [{"name": "E", "valueFrom": source}]}


def mount(**mount: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}


FIELD, RESOURCE = {"fieldPath": "metadata.name"}, {"resource": "limits.cpu"}


def test_a_mistake_in_a_container(subtests: pytest.Subtests) -> None:
    for container, field, kind in [
        (env(), "env[0].valueFrom", "Invalid value"),
        (env(fieldRef=FIELD, resourceFieldRef=RESOURCE), "env[0].valueFrom", "Invalid value"),
        (env(fieldRef={}), "env[0].valueFrom.fieldRef.fieldPath", "Required value"),
        (mount(bindMountOptions=["nodev", "exec"]), "volumeMounts[0].bindMountOptions[1]", "Unsupported value"),
        (
            {"livenessProbe": {"httpGet": {"port": 1, "protocol": "H2C"}}},
            "livenessProbe.httpGet.protocol",
            "Unsupported value",
        ),
        ({"livenessProbe": {"grpc": {"port": 1, "mode": "tls"}}}, "livenessProbe.grpc.mode", "Unsupported value"),
        (env(fieldRef={"fieldPath": "x"}), "env[0].valueFrom.fieldRef.fieldPath", "Invalid value"),
        (env(resourceFieldRef={}), "env[0].valueFrom.resourceFieldRef.resource", "Required value"),
        (env(resourceFieldRef={"resource": "cpu"}), "env[0].valueFrom.resourceFieldRef.resource", "Invalid value"),
        (
            env(resourceFieldRef={**RESOURCE, "divisor": "x"}),
            "env[0].valueFrom.resourceFieldRef.divisor",
            "Invalid value",
        ),
        ({"envFrom": [{"prefix": "X_"}]}, "envFrom[0]", "Invalid value"),
        ({"ports": [{"containerPort": 1, "hostPort": -1}]}, "ports[0].hostPort", "Invalid value"),
        ({"ports": [{"containerPort": 1, "hostIP": "x"}]}, "ports[0].hostIP", "Invalid value"),
        (mount(name=""), "volumeMounts[0].name", "Required value"),
        (mount(mountPath=""), "volumeMounts[0].mountPath", "Required value"),
        (mount(subPath="/x"), "volumeMounts[0].subPath", "Invalid value"),
        (mount(subPath="a", subPathExpr="b"), "volumeMounts[0].subPathExpr", "Invalid value"),
        (mount(mountPropagation="x"), "volumeMounts[0].mountPropagation", "Unsupported value"),
        (mount(recursiveReadOnly="Enabled"), "volumeMounts[0].recursiveReadOnly", "Forbidden"),
        (
            mount(readOnly=True, recursiveReadOnly="IfPossible", mountPropagation="HostToContainer"),
            "volumeMounts[0].recursiveReadOnly",
            "Forbidden",
        ),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}] * 2}, "volumeMounts[1].mountPath", "Invalid value"),
        ({"volumeDevices": [{"name": "x", "devicePath": "/d"}]}, "volumeDevices[0].name", "Not found"),
        ({"volumeDevices": [{"name": "v"}]}, "volumeDevices[0].devicePath", "Required value"),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}},
            "livenessProbe.successThreshold",
            "Invalid value",
        ),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "periodSeconds": -1}},
            "livenessProbe.periodSeconds",
            "Invalid value",
        ),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 0}},
            "livenessProbe.terminationGracePeriodSeconds",
            "Invalid value",
        ),
        (
            {"readinessProbe": {"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 1}},
            "readinessProbe.terminationGracePeriodSeconds",
            "Invalid value",
        ),
        ({"livenessProbe": {"exec": {"command": ["x"]}, "grpc": {"port": 1}}}, "livenessProbe.grpc", "Forbidden"),
        ({"livenessProbe": {"httpGet": {}}}, "livenessProbe.httpGet.port", "Required value"),
        (
            {"livenessProbe": {"httpGet": {"port": 1, "scheme": "FTP"}}},
            "livenessProbe.httpGet.scheme",
            "Unsupported value",
        ),
        ({"livenessProbe": {"tcpSocket": {"port": "a--b"}}}, "livenessProbe.tcpSocket.port", "Invalid value"),
        ({"livenessProbe": {"grpc": {"port": 0}}}, "livenessProbe.grpc.port", "Invalid value"),
        (
            {"lifecycle": {"postStart": {"sleep": {"seconds": -1}}}},
            "lifecycle.postStart.sleep.seconds",
            "Invalid value",
        ),
        ({"securityContext": {"runAsUser": -1}}, "securityContext.runAsUser", "Invalid value"),
        ({"securityContext": {"procMount": "None"}}, "securityContext.procMount", "Unsupported value"),
        ({"securityContext": {"seccompProfile": {}}}, "securityContext.seccompProfile.type", "Required value"),
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "/x"}}},
            "securityContext.seccompProfile.localhostProfile",
            "Invalid value",
        ),
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}}},
            "securityContext.seccompProfile.localhostProfile",
            "Invalid value",
        ),
        (
            {"securityContext": {"appArmorProfile": {"type": "Unconfined", "localhostProfile": "x"}}},
            "securityContext.appArmorProfile.localhostProfile",
            "Invalid value",
        ),
        (
            {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}},
            "securityContext",
            "Invalid value",
        ),
    ]:
        with subtests.test(f"{container!r:.80}"):
            assert fields_refused(container) == [f"spec.containers[0].{field}: {kind}"]


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


ITEM = {"path": "a", "fieldRef": FIELD}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"metadata": {"namespace": "n"}}, "metadata.name: Required value"),
        ({"metadata": {"name": "p"}}, "metadata.namespace: Required value"),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds: Invalid value"),
        ({"dnsConfig": {"nameservers": ["::1"] * 4}}, "spec.dnsConfig.nameservers: Invalid value"),
        ({"dnsConfig": {"nameservers": ["x"]}}, "spec.dnsConfig.nameservers[0]: Invalid value"),
        ({"dnsConfig": {"searches": ["x"] * 33}}, "spec.dnsConfig.searches: Invalid value"),
        ({"dnsConfig": {"options": [{"value": "x"}]}}, "spec.dnsConfig.options[0]: Required value"),
        ({"hostAliases": [{"ip": "::1", "hostnames": ["_"]}]}, "spec.hostAliases[0].hostnames: Invalid value"),
        ({"subdomain": "a.b"}, "spec.subdomain: Invalid value"),
        (
            {"securityContext": {"supplementalGroups": [-1]}},
            "spec.securityContext.supplementalGroups[0]: Invalid value",
        ),
        ({"securityContext": {"sysctls": [{"value": "1"}]}}, "spec.securityContext.sysctls[0].name: Required value"),
        ({"securityContext": {"sysctls": [{"name": "A B"}]}}, "spec.securityContext.sysctls[0].name: Invalid value"),
        (
            {"securityContext": {"sysctls": [{"name": "a.b"}, {"name": "a/b"}]}},
            "spec.securityContext.sysctls[1].name: Duplicate value",
        ),
        (
            {"initContainers": [{"name": "i", "image": "x", "livenessProbe": {"exec": {"command": ["x"]}}}]},
            "spec.initContainers[0].livenessProbe: Forbidden",
        ),
        ({"volumes": [{"emptyDir": {}}]}, "spec.volumes[0].name: Required value"),
        (volume(emptyDir={"sizeLimit": "big"}), "spec.volumes[0].emptyDir.sizeLimit: Invalid value"),
        (volume(emptyDir={"sizeLimit": -1}), "spec.volumes[0].emptyDir.sizeLimit: Forbidden"),
        (volume(secret={"secretName": "s", "defaultUser": -1}), "spec.volumes[0].secret.defaultUser: Invalid value"),
        (
            volume(configMap={"name": "c", "items": [{"key": "k", "path": "p", "user": 2**31}]}),
            "spec.volumes[0].configMap.items[0].user: Invalid value",
        ),
        (volume(emptyDir={"mode": 0o2000}), "spec.volumes[0].emptyDir.mode: Invalid value"),
        (volume(hostPath={"path": "/a/../b"}), "spec.volumes[0].hostPath.path: Invalid value"),
        (volume(hostPath={"path": "/a", "type": "Pipe"}), "spec.volumes[0].hostPath.type: Unsupported value"),
        (volume(image={}), "spec.volumes[0].image.reference: Required value"),
        (volume(nfs={"server": "s"}), "spec.volumes[0].nfs.path: Required value"),
        (volume(persistentVolumeClaim={}), "spec.volumes[0].persistentVolumeClaim.claimName: Required value"),
        (volume(configMap={"defaultMode": 0o1000}), "spec.volumes[0].configMap.defaultMode: Invalid value"),
        (
            volume(downwardAPI={"items": [{**ITEM, "path": "../a"}]}),
            "spec.volumes[0].downwardAPI.items[0].path: Invalid value",
        ),
        (
            volume(downwardAPI={"items": [{"path": "a", "resourceFieldRef": {"containerName": "c", "resource": "x"}}]}),
            "spec.volumes[0].downwardAPI.items[0].resourceFieldRef.resource: Invalid value",
        ),
        (
            volume(projected={"sources": [{"downwardAPI": {"items": [{"fieldRef": FIELD}]}}]}),
            "spec.volumes[0].projected.sources[0].downwardAPI.items[0].path: Required value",
        ),
    ],
)
def test_a_mistake_in_the_spec(spec: dict[str, Any], field: str) -> None:
    assert fields_refused(**spec) == [field]


def test_on_the_hosts_network_a_port_is_the_same_inside_and_outside() -> None:
    ports = {"ports": [{"containerPort": 80, "hostPort": 81}]}
    assert fields_refused(ports, hostNetwork=True) == ["spec.containers[0].ports[0].hostPort: Invalid value"]


def test_a_label_has_a_value_of_a_certain_form() -> None:
    metadata = {"name": "p", "namespace": "n", "labels": {"a": "not a value"}}
    assert fields_refused(metadata=metadata) == ["metadata.labels: Invalid value"]
