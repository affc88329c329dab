"""Forms the pods of `bulkhead what-if`: from a document of a file the pod that the agent would receive. Pure.

A document of the API becomes what the API server would make of it, as far as that is known here: with defaults, and
with what the built-in admission adds to every pod. On a node that runs alone a document becomes a static pod."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from services.cli.pods.manifest_files import Document
from shared.agent.apply_api import DIRECTORY
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.podspec.containers import every_container
from shared.podspec.defaults import apply_defaults
from shared.podspec.pod_source import SOURCE
from shared.podspec.schema import plain_copy, type_errors
from shared.podspec.static_pod import InvalidPod, static_pod
from shared.podspec.validation import validate_pod

UNKNOWN_UID = "<uid>"  # stands for the UID of a pod that the API server has not made yet
_TEMPLATES = {  # by kind: the fields on the way to the pod template
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}
KINDS = ("Pod", *_TEMPLATES)
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_VOLUME = "kube-api-access"
_NODE = "node.kubernetes.io"
_EVERY_POD = tuple(
    {"key": f"{_NODE}/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
)
_DAEMONS = (
    *({"key": f"{_NODE}/{key}", "operator": "Exists", "effect": "NoExecute"} for key in ("not-ready", "unreachable")),
    *(
        {"key": f"{_NODE}/{key}", "operator": "Exists", "effect": "NoSchedule"}
        for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)


class NodeIdentity(Struct, frozen=True, kw_only=True):
    """The node that is asked. `static_pod_path`: the configured directory, "" = none."""

    name: str
    root_dir: str
    static_pod_path: str = ""


class Candidate(Struct, frozen=True, kw_only=True):
    """A pod to ask about. `owner`: `<kind> <namespace>/<name>` of the object whose template it is, "" = a Pod.
    `invalid`: why the pod is invalid; `pod` is then None. `notes`: what is assumed."""

    file: str
    namespace: str
    name: str
    source: str  # file | api
    owner: str = ""
    pod: Object | None = None
    invalid: str = ""
    notes: tuple[str, ...] = ()


def candidate(
    document: Document, file: str, namespace: str, node: NodeIdentity, *, static: bool, applied: bool
) -> Candidate:
    """Return the candidate of a document, whose kind is one of KINDS. `namespace`: for a document that names none;
    `static`: it is a static pod; `applied`: it is static because it is applied to a node that runs alone."""
    found = _pod_document(document, namespace)
    metadata, kind = found["metadata"], document.get("kind")
    name = str(metadata.get("name") or "")
    owner = "" if kind == "Pod" else f"{kind} {metadata['namespace']}/{name}"
    base = Candidate(
        file=file, namespace=str(metadata["namespace"]), name=name, source="file" if static else "api", owner=owner
    )
    try:
        if static:
            origin = f"{node.root_dir}/{DIRECTORY}/pod.{base.namespace}.{name}"
            if not applied:
                origin = f"{node.static_pod_path.rstrip('/')}/{file.rpartition('/')[2]}"
            pod = static_pod(found, node_name=node.name, source="file", origin=origin, objects=applied)
            return _with(base, pod, ())
        pod = _api_pod(found, node.name, is_daemon=kind == "DaemonSet")
    except InvalidPod as error:
        return replace(base, invalid=str(error))
    return _with(base, pod, tuple(_assumptions(pod)))


def _with(base: Candidate, pod: Object, notes: tuple[str, ...]) -> Candidate:
    metadata = pod["metadata"]
    named = {"name": str(metadata["name"]), "namespace": str(metadata["namespace"])}
    return replace(base, **named, pod=pod, notes=notes)


def _pod_document(document: Document, namespace: str) -> Document:
    """Return the Pod of a document; for an owner, its template under the owner's name."""
    owner = _fields(document.get("metadata"))
    template: Mapping[str, Any] = document
    for field in _TEMPLATES.get(str(document.get("kind")), ()):
        template = _fields(template.get(field))
    is_pod = document.get("kind") == "Pod"
    metadata = dict(_fields(template.get("metadata")))
    space = owner.get("namespace") or namespace or "default"
    name = owner.get("name") or (f"{owner['generateName']}0" if owner.get("generateName") else None)
    metadata |= {"namespace": space, **({"name": name} if name else {})}
    for field in ("generateName", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
        metadata.pop(field, None)
    version = document.get("apiVersion") if is_pod else "v1"
    spec = {"spec": template["spec"]} if "spec" in template else {}
    return {"apiVersion": version, "kind": "Pod", "metadata": metadata, **spec}


def _api_pod(document: Document, node_name: str, *, is_daemon: bool) -> Object:
    """Return the pod as the API server would make it. Raises InvalidPod."""
    if document["apiVersion"] != "v1":
        raise InvalidPod(f"invalid pod: apiVersion is {str(document['apiVersion'])[:64]!r}, must be 'v1'")
    pod, errors = plain_copy(document)
    if errors := errors or type_errors(pod):
        raise InvalidPod(f"invalid pod: [{', '.join(errors[:20])}]")
    apply_defaults(pod)
    metadata, spec = pod["metadata"], pod["spec"]
    spec.setdefault("nodeName", node_name)
    spec.setdefault("serviceAccountName", "default")
    if "priority" not in spec:
        spec["priority"] = _PRIORITIES.get(spec.get("priorityClassName") or "", 0)
    own = list(spec.get("tolerations") or ())
    spec["tolerations"] = [*own, *(_DAEMONS if is_daemon else (one for one in _EVERY_POD if not _is_covered(one, own)))]
    _add_token(pod)
    if errors := validate_pod(pod):
        raise InvalidPod(f"invalid pod: [{', '.join(errors[:20])}]")
    metadata["uid"] = metadata.get("uid") or UNKNOWN_UID
    metadata["annotations"] = {**(metadata.get("annotations") or {}), SOURCE: "api"}
    return dict(pod)


def _is_covered(one: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(
        other.get("key") in (None, "", one["key"]) and other.get("effect") in (None, "", one["effect"])
        for other in tolerations
    )


def _add_token(pod: Object) -> None:
    """Add the volume with a token of the service account as the API server does, with a mount in each container that
    has none at its path."""
    spec = pod["spec"]
    if spec.get("automountServiceAccountToken") is False:
        return
    added = False
    for _, container in every_container(pod):
        mounts = container.get("volumeMounts") or []
        if all(mount.get("mountPath") != _TOKEN_PATH for mount in mounts):
            added = True
            container["volumeMounts"] = [
                *mounts,
                {"name": _TOKEN_VOLUME, "mountPath": _TOKEN_PATH, "readOnly": True},
            ]
    if added:
        sources = [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]
        volume = {"name": _TOKEN_VOLUME, "projected": {"sources": sources}}
        spec["volumes"] = [*(spec.get("volumes") or ()), volume]


def _assumptions(pod: Object) -> Iterable[str]:
    spec = pod["spec"]
    name = spec.get("priorityClassName")
    if name and name not in _PRIORITIES and not spec.get("priority"):
        yield f"the priority of PriorityClass {name} is not known here: 0 is assumed"
    if pod["metadata"]["uid"] == UNKNOWN_UID:
        yield f"the API server chooses the UID: paths have {UNKNOWN_UID} in its place"


def _fields(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
