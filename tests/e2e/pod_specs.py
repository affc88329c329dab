"""Pods that differ in one field each, half of them with one that this agent does not support."""

from typing import Any

from shared.model.objects import Object
from shared.podspec.support import MAX_CONTAINERS, MAX_VOLUMES
from tests.support.agents.behaviour import container
from tools.oci_image import BUSYBOX_IMAGE

OBJECTS: list[Object] = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"key": "value"}},
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "value"}},
]
_FIELD = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
_EXEC = {"exec": {"command": ["true"]}}
_TRUE = container("first", "true")

# Each is what the spec has beside its container.
_SUPPORTED: dict[str, Object] = {
    "plain": {},
    "init": {"initContainers": [_TRUE]},
    "sidecar": {"initContainers": [container("beside", restartPolicy="Always")]},
    "tolerations": {"tolerations": [{"operator": "Exists"}]},
    "dns": {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}},
    "aliases": {"hostAliases": [{"ip": "192.0.2.2", "hostnames": ["other"]}]},
    "hostname": {"hostname": "named", "subdomain": "below"},
    "host-network": {"hostNetwork": True},
    "host-pid": {"hostPID": True},
    "host-ipc": {"hostIPC": True},
    "shared-processes": {"shareProcessNamespace": True},
    "no-links": {"enableServiceLinks": False},
    "linux": {"os": {"name": "linux"}},
    "unused": {"volumes": [{"name": "v", "rbd": {}}]},  # no container mounts it: it is not set up
    "pod-level": {"resources": {"limits": {"memory": "64Mi"}}},
    "groups": {"securityContext": {"supplementalGroups": [2000], "fsGroup": 3000}},
    "sysctl": {"securityContext": {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]}},
}
_CONTAINERS: dict[str, Object] = {
    "user": {"securityContext": {"runAsUser": 1000, "runAsNonRoot": True}},
    "read-only": {"securityContext": {"readOnlyRootFilesystem": True}},
    "capabilities": {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}},
    "privileged": {"securityContext": {"privileged": True}},
    "resources": {"resources": {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}}},
    "probe": {"readinessProbe": _EXEC},
    "hook": {"lifecycle": {"postStart": _EXEC}},
    "variables": {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}]},
}
_VOLUMES: dict[str, Object] = {
    "disk": {"emptyDir": {}},
    "memory": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    "host-path": {"hostPath": {"path": "/tmp", "type": "Directory"}},
    "files": {"configMap": {"name": "m"}},
    "projected": {"projected": {"sources": [{"secret": {"name": "s"}}, {"downwardAPI": {"items": [_FIELD]}}]}},
}
_UNMOUNTED = (
    "cephfs", "flocker", "gitRepo", "glusterfs", "photonPersistentDisk", "quobyte", "rbd", "scaleIO",
    "storageos",
)  # fmt: skip
_UNSUPPORTED: dict[str, Object] = {
    "windows": {"os": {"name": "windows"}},
    "many-containers": {
        "initContainers": [{"name": f"i{n}", "image": BUSYBOX_IMAGE} for n in range(MAX_CONTAINERS)],
    },
    "many-regular-containers": {
        "containers": [{"name": f"c{n}", "image": BUSYBOX_IMAGE} for n in range(MAX_CONTAINERS + 1)],
    },
    "many-volumes": {"volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(MAX_VOLUMES + 1)]},
    "many-secrets": {"imagePullSecrets": [{"name": f"s{n}"} for n in range(2001)]},
}
_UNSUPPORTED_VOLUMES: dict[str, Object] = {
    "medium": {"emptyDir": {"medium": "Floppy"}},
    "projection": {"projected": {"sources": [{"ofALaterRelease": {}}]}},
}


def _pod(name: str, fields: Object, own: dict[str, Any] | None = None) -> Object:
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container("main", **(own or {}))], **fields}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def pods_of_all_kinds() -> tuple[list[Object], list[Object]]:
    """The pods with supported fields alone, and the others."""
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    supported = [_pod(name, fields) for name, fields in _SUPPORTED.items()]
    supported += [_pod(name, {}, own) for name, own in _CONTAINERS.items()]
    supported += [_pod(name, {"volumes": [{"name": "v", **source}]}, mount) for name, source in _VOLUMES.items()]
    lacking = [_pod(kind.lower(), {"volumes": [{"name": "v", kind: {}}]}, mount) for kind in _UNMOUNTED]
    lacking += [_pod(name, fields) for name, fields in _UNSUPPORTED.items()]
    unmounted = _UNSUPPORTED_VOLUMES.items()
    lacking += [_pod(name, {"volumes": [{"name": "v", **source}]}, mount) for name, source in unmounted]
    exclusive = {"resources": {"limits": {"cpu": "1", "memory": "64Mi"}}}
    return [*supported, _pod("exclusive", {}, exclusive)], lacking
