"""A static pod that uses every field of the schema it may use, and what else may be in each of them."""

import json
from collections.abc import Iterator
from typing import Any

from shared.model.objects import Object
from shared.model.schema import ListOf, MapOf, Scalar, Schema
from shared.podspec.schema import POD, join

Path = tuple[str | int, ...]

# A static pod may not have these, whatever they hold; or nothing reads them.
NOT_STATIC = (
    "spec.ephemeralContainers",
    "spec.imagePullSecrets",
    "spec.resourceClaims",
    "spec.schedulingGates",
    "spec.serviceAccount",
    "spec.volumes[].",
    "spec.containers[].resources.claims",
    "spec.initContainers[].",
    "spec.resources.claims",
    "spec.containers[].env[].valueFrom.configMapKeyRef",
    "spec.containers[].env[].valueFrom.secretKeyRef",
    "spec.containers[].envFrom",
    "spec.containers[].volumeDevices",
    "spec.hostnameOverride",
    "spec.os.name",
    "metadata.deletion",
    "metadata.generateName",
    "metadata.resourceVersion",
)

_HTTP = {
    "path": "/x",
    "port": "web",
    "host": "localhost",
    "scheme": "HTTPS",
    "protocol": "HTTP1",
    "httpHeaders": [{"name": "X-A", "value": "b"}],
}
_PROBE = {
    "initialDelaySeconds": 1,
    "timeoutSeconds": 2,
    "periodSeconds": 3,
    "successThreshold": 1,
    "failureThreshold": 4,
}
_DOWNWARD = [
    {"path": "labels", "mode": 0o400, "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}},
    {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}},
]
_SELINUX = {"user": "u", "role": "r", "type": "t", "level": "s0"}


def everything() -> Object:
    """Valid as it is."""
    main: dict[str, Any] = {
        "name": "main",
        "image": "busybox:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "$(A)"],
        "args": ["x"],
        "workingDir": "/w",
        "env": [
            {"name": "A", "value": "a"},
            {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {
                "name": "C",
                "valueFrom": {"resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}},
            },
            {
                "name": "D",
                "valueFrom": {"fileKeyRef": {"volumeName": "empty", "path": "env", "key": "K", "optional": True}},
            },
        ],
        "ports": [{"name": "web", "containerPort": 80, "hostPort": 8080, "protocol": "TCP", "hostIP": "127.0.0.1"}],
        "resources": {"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "500m", "memory": "32Mi"}},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        "restartPolicy": "OnFailure",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1, 42]}}],
        "volumeMounts": [
            {"name": "empty", "mountPath": "/e", "readOnly": True, "recursiveReadOnly": "IfPossible", "subPath": "a/b"},
            {"name": "host", "mountPath": "/h", "subPathExpr": "$(A)", "mountPropagation": "HostToContainer"},
            {"name": "image", "mountPath": "/i", "subPath": "bin"},
            {"name": "empty", "mountPath": "/b", "bindMountOptions": ["noexec", "nodev"]},
        ],
        "livenessProbe": {**_PROBE, "httpGet": _HTTP, "terminationGracePeriodSeconds": 5},
        "readinessProbe": {**_PROBE, "tcpSocket": {"port": 80, "host": "localhost"}},
        "startupProbe": {**_PROBE, "grpc": {"port": 80, "service": "s", "mode": "TLS"}},
        "lifecycle": {
            "postStart": {"exec": {"command": ["true"]}},
            "preStop": {"sleep": {"seconds": 1}},
            "stopSignal": "SIGUSR1",
        },
        "terminationMessagePath": "/dev/message",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
            "privileged": False,
            "seLinuxOptions": _SELINUX,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "procMount": "Unmasked",
            "seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"},
            "appArmorProfile": {"type": "Localhost", "localhostProfile": "a"},
        },
        "stdin": True,
        "stdinOnce": True,
        "tty": True,
    }
    other = {
        "name": "other",
        "image": "busybox:1",
        "livenessProbe": {"exec": {"command": ["true"]}},
        "lifecycle": {"postStart": {"httpGet": _HTTP}, "preStop": {"tcpSocket": {"port": 80, "host": "h"}}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "everything",
            "namespace": "default",
            "uid": "0d8f6c3a",
            "labels": {"app": "web"},
            "annotations": {"a/b": "c"},
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "generation": 1,
            "finalizers": ["a/b"],
        },
        "spec": {
            "containers": [main, other],
            "initContainers": [
                {"name": "first", "image": "busybox:1", "restartPolicy": "Never"},
                {
                    "name": "side",
                    "image": "busybox:1",
                    "restartPolicy": "Always",
                    "startupProbe": {"tcpSocket": {"port": 1}},
                },
            ],
            "volumes": [
                {"name": "empty", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "host", "hostPath": {"path": "/srv", "type": "Directory"}},
                {"name": "image", "image": {"reference": "busybox:1", "pullPolicy": "Always"}},
                {"name": "down", "downwardAPI": {"items": _DOWNWARD, "defaultMode": 0o644}},
                {
                    "name": "proj",
                    "projected": {"sources": [{"downwardAPI": {"items": _DOWNWARD}}], "defaultMode": 0o644},
                },
                {"name": "nfs", "nfs": {"server": "s", "path": "/", "readOnly": True}},
            ],
            "nodeName": "n",
            "nodeSelector": {"disk": "ssd"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
                                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
                            }
                        ]
                    }
                }
            },
            "tolerations": [
                {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3}
            ],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 1}
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "activeDeadlineSeconds": 600,
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": ["1.1.1.1"],
                "searches": ["a.b"],
                "options": [{"name": "ndots", "value": "2"}],
            },
            "hostname": "h",
            "subdomain": "s",
            "setHostnameAsFQDN": True,
            "hostAliases": [{"ip": "::1", "hostnames": ["a.b"]}],
            "hostNetwork": False,
            "hostPID": False,
            "hostIPC": False,
            "hostUsers": False,
            "shareProcessNamespace": True,
            "enableServiceLinks": True,
            "serviceAccountName": "",
            "automountServiceAccountToken": False,
            "schedulerName": "x",
            "readinessGates": [{"conditionType": "example.com/ready"}],
            "runtimeClassName": "runc",
            "priority": 1000,
            "priorityClassName": "high",
            "preemptionPolicy": "Never",
            "overhead": {"cpu": "10m"},
            "resources": {"limits": {"cpu": "2", "memory": "256Mi"}, "requests": {"cpu": "1"}},
            "os": {"name": "linux"},
            "securityContext": {
                "seLinuxOptions": _SELINUX,
                "runAsUser": 1,
                "runAsGroup": 2,
                "runAsNonRoot": True,
                "supplementalGroups": [3],
                "supplementalGroupsPolicy": "Merge",
                "fsGroup": 4,
                "fsGroupChangePolicy": "Always",
                "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "1024 65535"}],
                "seccompProfile": {"type": "Localhost", "localhostProfile": "b.json"},
                "appArmorProfile": {"type": "Localhost", "localhostProfile": "b"},
                "seLinuxChangePolicy": "Recursive",
            },
        },
    }


def paths_of(value: Any, shape: Schema, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """Every place of a value that the schema knows, with its shape."""
    yield path, shape
    if isinstance(shape, dict):
        for key, inner in shape.items():
            if key in value:
                yield from paths_of(value[key], inner, (*path, key))
    elif isinstance(shape, MapOf):
        for key in value:
            yield from paths_of(value[key], shape.value, (*path, key))
    elif isinstance(shape, ListOf):
        for index, item in enumerate(value):
            yield from paths_of(item, shape.item, (*path, index))


def schema_paths(shape: Schema = POD, path: str = "") -> Iterator[str]:
    """The schema's own paths, `[]` for the items of lists."""
    yield path
    if isinstance(shape, dict):
        for key, inner in shape.items():
            yield from schema_paths(inner, join(path, key))
    elif isinstance(shape, ListOf):
        yield from schema_paths(shape.item, f"{path}[]")


def text_of(path: Path) -> str:
    """As messages write it."""
    text = ""
    shape: Schema = POD
    for step in path:
        inner: Any = shape
        if isinstance(inner, ListOf | MapOf):
            text += f"[{step}]"
            shape = inner.item if isinstance(inner, ListOf) else inner.value
        else:
            text = join(text, str(step))
            shape = inner[step]
    return text


ABSENT = object()
_HUGE = (-(2**63), -1, 0, 1, 2**31, 2**63 - 1, 2**63, 2**64)
_TEXTS = ("", " ", "x" * 300, "../x", "/", "é", "\n", "$(", "-0")
_WRONG: dict[Scalar, tuple[Any, ...]] = {
    Scalar.STRING: (5, True, {}),
    Scalar.INT64: ("5", True, 1.5, 2**63),
    Scalar.INT32: ("5", 1.5, [], 2**31),
    Scalar.BOOLEAN: ("true", 1, {}),
    Scalar.QUANTITY: (True, []),
    Scalar.INT_OR_STRING: (True, 1.5, 2**31),
}


def replacements(shape: Schema) -> Iterator[tuple[Any, bool]]:
    """What is put there instead, and whether it is of the wrong type."""
    yield ABSENT, False
    yield None, False
    if isinstance(shape, ListOf):
        yield from (([], False), ({}, True), ("x", True), ([None], True))
    elif isinstance(shape, dict | MapOf):
        yield from (({}, False), ([], True), ("x", True))
    else:
        yield from ((value, True) for value in _WRONG[shape])
        match shape:
            case Scalar.STRING:
                yield from ((text, False) for text in _TEXTS)
            case Scalar.INT64 | Scalar.INT32:
                limit = 2**31 if shape is Scalar.INT32 else 2**63
                yield from ((number, False) for number in _HUGE if -limit <= number < limit)
            case Scalar.BOOLEAN:
                yield from ((True, False), (False, False))
            case Scalar.QUANTITY:
                texts = ("", "x", "-1", "0", "1e100", "1Ei", "0.0000001", "9" * 40)
                yield from ((value, False) for value in (*texts, 5, -5, 0.5))
            case Scalar.INT_OR_STRING:
                yield from ((value, False) for value in (0, -1, 70000, "", "web", "no such port", "9" * 30))


def changed(document: Object, path: Path, value: Any) -> Object:
    """A copy with this in this place."""
    copied: Object = json.loads(json.dumps(document))
    *parents, last = path
    holder: Any = copied
    for step in parents:
        holder = holder[step]
    if value is ABSENT:
        del holder[last]
    else:
        holder[last] = value
    return copied
