"""What the API server lets a node do: Node authorization and NodeRestriction, as far as a kubelet meets them.

Raises 403 with the API server's own words. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from shared.kube.interface import ApiStatusError
from shared.model.objects import Object, annotations, name, namespace
from tests.fakes.api_resources import Target

# The first versions of the API server that enforce these by default.
NODES_READ_THEIR_PODS_ALONE = (1, 32)  # a GET of a pod that is gone, or of another node, is forbidden
TOKENS_FOR_NAMED_AUDIENCES_ALONE = (1, 32)  # those that a volume of the pod names

_NODE = "system:node:"
_MIRROR = "kubernetes.io/config.mirror"
_READ = frozenset({"get", "list", "watch"})
_ALLOWED: dict[str, frozenset[str]] = {
    "pods": _READ | {"create", "delete"},
    "pods/status": frozenset({"update", "patch"}),
    "nodes": _READ | {"create", "update", "patch"},
    "nodes/status": frozenset({"update", "patch"}),
    "services": _READ,
    "events": frozenset({"create", "update", "patch"}),
    "leases": frozenset({"get", "create", "update", "patch", "delete"}),
    "secrets": _READ,
    "configmaps": _READ,
    "persistentvolumeclaims": frozenset({"get"}),
    "persistentvolumeclaims/status": frozenset({"get", "update", "patch"}),
    "persistentvolumes": frozenset({"get"}),
    "serviceaccounts/token": frozenset({"create"}),
    "tokenreviews": frozenset({"create"}),
    "subjectaccessreviews": frozenset({"create"}),
    "runtimeclasses": _READ,
    "csidrivers": _READ,
    "clustertrustbundles": _READ,
    "podcertificaterequests": _READ | {"create"},
    "volumeattachments": frozenset({"get"}),
    "resourceclaims": frozenset({"get"}),
    "resourceslices": _READ | {"create", "update", "patch", "delete", "deletecollection"},
    "certificatesigningrequests": _READ | {"create"},
    "csinodes": frozenset({"get", "create", "update", "patch", "delete"}),
}
_LABELS_OF_A_NODE = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)


def node_of(user: str) -> str:
    """The node this user is, "" when it is none."""
    return user.removeprefix(_NODE) if user.startswith(_NODE) else ""


def authorize(
    user: str,
    verb: str,
    target: Target,
    wanted: str,
    pods: Iterable[Object],
    own: Object | None = None,
    *,
    selector: str = "",
    version: tuple[int, int],
) -> None:
    """May this node do that at all? `wanted` is the name it asks for, by path or by field selector; `own` its Node;
    `selector` the fieldSelector of the request; `version` of the API server."""
    node, resource = node_of(user), target.resource
    full = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
    why = ""
    if verb not in _ALLOWED.get(full, ()):
        why = f"node '{node}' cannot {verb} this object" if resource.plural == "secrets" else " "
    elif resource.plural in ("secrets", "configmaps"):
        if not wanted:
            why = "can only read namespaced object of this type"
        elif resource.kind == "ConfigMap" and _is_configuration(own, target.namespace, wanted):
            pass
        elif not any(
            wanted in referenced(pod, resource.kind)
            for pod in pods
            if _node_name(pod) == node and namespace(pod) == target.namespace and _MIRROR not in annotations(pod)
        ):
            why = f"no relationship found between node '{node}' and this object"
    elif full == "pods" and verb == "get" and version >= NODES_READ_THEIR_PODS_ALONE:
        if not any(
            (namespace(pod), name(pod)) == (target.namespace, target.name) and _node_name(pod) == node for pod in pods
        ):
            why = f"no relationship found between node '{node}' and this object"
    elif full == "podcertificaterequests" and verb in ("list", "watch"):
        if f"spec.nodeName={node}" not in selector.split(","):
            why = "can only list/watch podcertificaterequests with nodeName field selector"
    elif full == "serviceaccounts/token":
        if not any(
            (pod.get("spec") or {}).get("serviceAccountName", "default") == target.name
            for pod in pods
            if _node_name(pod) == node and namespace(pod) == target.namespace
        ):
            why = f"no relationship found between node '{node}' and this object"
    elif resource.plural == "leases" and target.namespace != "kube-node-lease":
        why = 'can only access leases in the "kube-node-lease" system namespace'
    elif resource.plural in ("leases", "csinodes") and target.name not in ("", node):
        why = "can only access node lease with the same name as the requesting node"
    if why:
        place = f' in the namespace "{target.namespace}"' if target.namespace else " at the cluster scope"
        what = f'cannot {verb} resource "{full}" in API group "{resource.group}"{place}'
        reason = f": {why}" if why.strip() else ""
        raise _forbidden(target, wanted, f'User "{user}" {what}{reason}')


def admit(
    user: str,
    verb: str,
    target: Target,
    before: Object | None,
    after: Object,
    pods: Iterable[Object],
    audiences: Callable[[Object], set[str]] | None = None,
) -> None:
    """May this node make this change? `before` is None for a creation, `after` the object as it would be; `audiences`:
    those that the volumes of a pod name, None = an API server that does not compare them."""
    node, plural = node_of(user), target.resource.plural
    refused = ""
    if plural == "pods" and verb == "create":
        refused = _mirror_pod(node, after)
    elif plural == "pods" and before is not None and _node_name(before) != node:
        what = "delete pods" if verb == "delete" else "update pod status for pods"
        refused = f'node "{node}" can only {what} with spec.nodeName set to itself'
    elif plural == "nodes":
        refused = _node(node, before, after)
    elif plural == "leases" and name(after) != node:
        refused = "can only access node lease with the same name as the requesting node"
    elif plural == "resourceslices" and (after.get("spec") or {}).get("nodeName") != node:
        refused = f'node "{node}" can only {verb} ResourceSlices with spec.nodeName set to itself'
    elif plural == "podcertificaterequests":
        refused = _certificate_request(node, after, target, pods)
    elif target.subresource == "token":
        refused = _token(node, after, target, pods, audiences)
    if refused:
        raise _forbidden(target, target.name if target.subresource == "token" else name(after), refused)


def referenced(pod: Object, kind: str) -> set[str]:
    """The names of the Secrets or ConfigMaps (`kind`) that a pod refers to."""
    return set(_names(pod, "secret" if kind == "Secret" else "configMap"))


def _is_configuration(node: Object | None, space: str, wanted: str) -> bool:
    """Whether the Node names this ConfigMap as its configuration."""
    source = ((node or {}).get("spec") or {}).get("configSource") or {}
    config_map = source.get("configMap") if isinstance(source, dict) else None
    named = config_map if isinstance(config_map, dict) else {}
    return (named.get("namespace"), named.get("name")) == (space, wanted)


def _names(pod: Object, kind: str) -> Iterator[str]:
    spec: Mapping[str, Any] = pod.get("spec") or {}
    if kind == "secret":
        yield from (reference["name"] for reference in spec.get("imagePullSecrets") or ())
    for volume in spec.get("volumes") or ():
        if kind in volume:
            yield volume[kind].get("secretName" if kind == "secret" else "name", "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            if kind in source:
                yield source[kind].get("name", "")
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for source in container.get("envFrom") or ():
            if f"{kind}Ref" in source:
                yield source[f"{kind}Ref"]["name"]
        for variable in container.get("env") or ():
            if (reference := (variable.get("valueFrom") or {}).get(f"{kind}KeyRef")) is not None:
                yield reference["name"]


def _mirror_pod(node: str, pod: Object) -> str:
    if _MIRROR not in annotations(pod):
        return f'pod does not have "{_MIRROR}" annotation, node "{node}" can only create mirror pods'
    if _node_name(pod) != node:
        return f'node "{node}" can only create pods with spec.nodeName set to itself'
    owners = pod["metadata"].get("ownerReferences") or ()
    if len(owners) > 1:
        return f'node "{node}" can only create pods with a single owner reference set to itself'
    for owner in owners:
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            return f'node "{node}" can only create pods with an owner reference set to itself'
        if not owner.get("controller"):
            return f'node "{node}" can only create pods with a controller owner reference set to itself'
    if (pod.get("spec") or {}).get("serviceAccountName"):
        return f'node "{node}" can not create pods that reference a service account'
    for kind, what in (("Secret", "secrets"), ("ConfigMap", "configmaps")):
        if referenced(pod, kind):
            return f'node "{node}" can not create pods that reference {what}'
    return ""


def _node(node: str, before: Object | None, after: Object) -> str:
    if name(after) != node:
        return f'node "{node}" is not allowed to modify node "{name(after)}"'
    old, new = ((obj or {}).get("metadata", {}).get("labels") or {} for obj in (before, after))
    changed = {label for label in {*old, *new} if old.get(label) != new.get(label)}
    if reserved := sorted(label for label in changed if _reserved(label)):
        act = "modify" if before is not None else "set"
        return f'node "{node}" is not allowed to {act} the following labels: {", ".join(reserved)}'
    if before is not None and (before.get("spec") or {}).get("taints") != (after.get("spec") or {}).get("taints"):
        return f'node "{node}" is not allowed to modify taints'
    return ""


def _reserved(label: str) -> bool:
    domain = label.partition("/")[0] if "/" in label else ""
    ours = label in _LABELS_OF_A_NODE or domain.endswith(("kubelet.kubernetes.io", "node.kubernetes.io"))
    return not ours and f".{domain}".endswith((".kubernetes.io", ".k8s.io"))


def _token(
    node: str,
    request: Object,
    target: Target,
    pods: Iterable[Object],
    audiences: Callable[[Object], set[str]] | None,
) -> str:
    spec = request.get("spec") or {}
    bound = spec.get("boundObjectRef") or {}
    if not bound:
        return "node requested token not bound to a pod"
    if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod"):
        return "node requested token bound to a kind that is no pod"
    pod = next((p for p in pods if (namespace(p), name(p)) == (target.namespace, bound.get("name"))), None)
    if pod is None or _node_name(pod) != node:
        return "node requested token bound to a pod scheduled on a different node"
    if bound.get("uid") and bound["uid"] != pod["metadata"]["uid"]:
        return f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record"
    wanted = spec.get("audiences") or [""]
    if audiences is not None and len(wanted) > 1:
        return "node may only request 0 or 1 audiences"
    if audiences is not None and wanted[0] not in audiences(pod):
        user = f"{_NODE}{node}"
        return (
            f'audience "{wanted[0]}" not found in pod spec volume, {user} is not authorized to request tokens for this '
            "audience"
        )
    return ""


def _certificate_request(node: str, request: Object, target: Target, pods: Iterable[Object]) -> str:
    spec = request.get("spec") or {}
    if spec.get("nodeName") != node:
        return f"PodCertificateRequest.Spec.NodeName={spec.get('nodeName')!r} is not the requesting node"
    pod = next((p for p in pods if (namespace(p), name(p)) == (target.namespace, spec.get("podName"))), None)
    if pod is None or pod["metadata"]["uid"] != spec.get("podUID") or _node_name(pod) != node:
        return "the pod of the PodCertificateRequest is not on the requesting node"
    return ""


def _node_name(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName", ""))


def _forbidden(target: Target, wanted: str, why: str) -> ApiStatusError:
    resource = target.resource
    what = f'{resource.qualified} "{wanted}"' if wanted else resource.qualified
    details = {"name": wanted, "kind": resource.plural, **({"group": resource.group} if resource.group else {})}
    return ApiStatusError(403, "Forbidden", f"{what} is forbidden: {why}", details=details)
