"""The resources the API server's double serves: paths, selectors, what an older server does not know. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.kube.interface import ApiStatusError
from shared.model.objects import Object


@dataclass(frozen=True)
class Resource:
    """One kind of object. `selectable`: the fields a fieldSelector may name besides metadata.name and .namespace."""

    prefix: str  # /api/v1 or /apis/<group>/v1
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    selectable: tuple[str, ...] = ()
    stored: bool = True
    unconditional_update: bool = True
    since: tuple[int, int] = (0, 0)  # the first release that has it

    @property
    def group(self) -> str:
        """ "" for the core group."""
        return "" if self.prefix == "/api/v1" else self.prefix.split("/")[2]

    @property
    def qualified(self) -> str:
        """As error messages name it: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.uid",
    "reason",
)
_SLICE_FIELDS = ("spec.nodeName", "spec.driver")
_CORE, _AUTHN, _AUTHZ = "/api/v1", "/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1"
_CERTIFICATES, _CSRS = "/apis/certificates.k8s.io/v1", "certificatesigningrequests"
_PCRS = "podcertificaterequests"

RESOURCES = (
    Resource(_CORE, "pods", "Pod", has_status=True, selectable=_POD_FIELDS),
    Resource(_CORE, "nodes", "Node", namespaced=False, has_status=True, selectable=("spec.unschedulable",)),
    Resource(_CORE, "namespaces", "Namespace", namespaced=False, has_status=True),
    Resource(_CORE, "services", "Service", has_status=True, selectable=("spec.clusterIP", "spec.type")),
    Resource(_CORE, "secrets", "Secret", selectable=("type",)),
    Resource(_CORE, "configmaps", "ConfigMap"),
    Resource(_CORE, "serviceaccounts", "ServiceAccount"),
    Resource(_CORE, "events", "Event", selectable=_EVENT_FIELDS),
    Resource(_CORE, "persistentvolumeclaims", "PersistentVolumeClaim", has_status=True),
    Resource(_CORE, "persistentvolumes", "PersistentVolume", namespaced=False, has_status=True),
    Resource("/apis/coordination.k8s.io/v1", "leases", "Lease", unconditional_update=False),
    Resource("/apis/node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False),
    Resource("/apis/storage.k8s.io/v1", "csinodes", "CSINode", namespaced=False),
    Resource("/apis/storage.k8s.io/v1", "csidrivers", "CSIDriver", namespaced=False),
    Resource("/apis/storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", namespaced=False, has_status=True),
    Resource("/apis/resource.k8s.io/v1", "resourceclaims", "ResourceClaim", has_status=True),
    Resource("/apis/resource.k8s.io/v1", "resourceslices", "ResourceSlice", False, selectable=_SLICE_FIELDS),
    Resource(_CERTIFICATES, _CSRS, "CertificateSigningRequest", False, True, selectable=("spec.signerName",)),
    Resource(f"{_CERTIFICATES}beta1", _CSRS, "CertificateSigningRequest", False, True),
    Resource(f"{_CERTIFICATES}beta1", "clustertrustbundles", "ClusterTrustBundle", namespaced=False),
    Resource(_CERTIFICATES, "clustertrustbundles", "ClusterTrustBundle", namespaced=False, since=(1, 37)),
    Resource(f"{_CERTIFICATES}beta1", _PCRS, "PodCertificateRequest", True, True, selectable=("spec.nodeName",)),
    Resource(_CERTIFICATES, _PCRS, "PodCertificateRequest", True, True, ("spec.nodeName",), since=(1, 37)),
    Resource(_AUTHN, "tokenreviews", "TokenReview", namespaced=False, stored=False),
    Resource(_AUTHZ, "subjectaccessreviews", "SubjectAccessReview", namespaced=False, stored=False),
)
_BY_PATH = {(resource.prefix, resource.plural): resource for resource in RESOURCES}
_PATH = re.compile(
    r"(?P<prefix>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?"
)


@dataclass(frozen=True)
class Target:
    """What a path names; an empty name is the whole list, an empty namespace all of them."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        """The path of the object itself, or of the list."""
        namespace = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{self.resource.prefix}{namespace}/{self.resource.plural}" + (f"/{self.name}" if self.name else "")

    def named(self, name: str) -> "Target":
        """The same for one object of the list."""
        return Target(self.resource, self.namespace, name, "")


def target_of(path: str) -> Target:
    """The path taken apart; 404 for one that the API server does not have."""
    if (cluster := re.fullmatch(r"/api/v1/namespaces(?:/([^/]+)(?:/(status))?)?", path)) is not None:
        return Target(_BY_PATH[_CORE, "namespaces"], "", cluster[1] or "", cluster[2] or "")
    found = _PATH.fullmatch(path)
    resource = _BY_PATH.get((found["prefix"], found["plural"])) if found else None
    if found is None or resource is None:
        raise ApiStatusError(404, "NotFound", "the server could not find the requested resource")
    return Target(resource, found["namespace"] or "", found["name"] or "", found["subresource"] or "")


@dataclass(frozen=True)
class OlderServer:
    """What a server does not know: fields (`status.hostIPs`; list elements are transparent) and field selectors."""

    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    selectors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pod_generation: bool = True
    version: tuple[int, int] = (1, 36)
    absent: tuple[str, ...] = ()  # prefixes of the APIs it does not have
    resizes_pods: bool = True  # pods have the subresource `resize`
    lists_by_watch: bool = True  # the feature gate WatchList, which is on by default since 1.34

    def why_not_by_watch(self, query: Mapping[str, str]) -> str:
        """What it finds wrong with the query of a watch that is to begin with all objects, "" = nothing: the validation
        of ListOptions of 1.20, and of 1.27 and later. Before 1.19 the parameters are ignored."""
        field, forbidden = "resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden for watch"
        match, initial = query.get(field), query.get("sendInitialEvents")
        if self.version < (1, 27):
            return f"{field}: {forbidden}" if match and self.version >= (1, 19) else ""
        if initial and match != "NotOlderThan":
            return f"{field}: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        if initial and not self.lists_by_watch:
            why = "is forbidden for watch unless the WatchList feature gate is enabled"
            return f"sendInitialEvents: Forbidden: sendInitialEvents {why}"
        return f"{field}: {forbidden} unless sendInitialEvents is provided" if match and not initial else ""

    def drop(self, kind: str, obj: Object) -> None:
        """Remove the unknown fields in place."""
        for path in self.fields.get(kind, ()):
            _remove(obj, path.split("."))


_CONTAINER_STATUS = (
    "allocatedResources",
    "allocatedResourcesStatus",
    "resources",
    "volumeMounts",
    "user",
    "stopSignal",
)
NEWEST = OlderServer()
V1_37 = OlderServer(version=(1, 37))  # what it has more than 1.36
_TRUST_BUNDLES = f"{_CERTIFICATES}beta1/clustertrustbundles"
_CLAIMS = "/apis/resource.k8s.io/"
V1_18 = OlderServer(
    version=(1, 18), resizes_pods=False, absent=("/apis/certificates.k8s.io/v1/", _TRUST_BUNDLES, _CLAIMS)
)
V1_20 = OlderServer(
    absent=(_TRUST_BUNDLES, f"{_CERTIFICATES}beta1/{_PCRS}", _CLAIMS),
    fields={
        "Pod": (
            "spec.os",
            "spec.hostUsers",
            "spec.resources",
            "spec.resourceClaims",
            "spec.schedulingGates",
            "spec.initContainers.restartPolicy",
            "spec.containers.resizePolicy",
            "spec.containers.resources.claims",
            "status.observedGeneration",
            "status.hostIPs",
            "status.resize",
            "status.resources",
            "status.allocatedResources",
            "status.resourceClaimStatuses",
            "status.conditions.observedGeneration",
            *(
                f"status.{statuses}.{name}"
                for statuses in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
                for name in _CONTAINER_STATUS
            ),
        ),
        "Node": ("status.runtimeHandlers", "status.features", "status.nodeInfo.swap", "status.declaredFeatures"),
    },
    selectors={"Service": ("spec.clusterIP", "spec.type"), "Pod": ("spec.hostNetwork",)},
    pod_generation=False,
    resizes_pods=False,
    version=(1, 20),
)


def _remove(holder: Any, path: list[str]) -> None:
    if isinstance(holder, list):
        for item in holder:
            _remove(item, path)
    elif isinstance(holder, dict):
        if len(path) == 1:
            holder.pop(path[0], None)
        else:
            _remove(holder.get(path[0]), path[1:])


@dataclass(frozen=True)
class Selector:
    """A fieldSelector and a labelSelector: (field path or label, wanted equal, value); a value of None = present."""

    fields: tuple[tuple[str, bool, str], ...] = ()
    labels: tuple[tuple[str, bool, str | None], ...] = ()

    def matches(self, obj: Object | None) -> bool:
        """Whether the object is selected; None never is."""
        if obj is None:
            return False
        labels = obj.get("metadata", {}).get("labels") or {}
        return all((_field(obj, path) == value) is equal for path, equal, value in self.fields) and all(
            ((name in labels) if value is None else labels.get(name) == value) is equal
            for name, equal, value in self.labels
        )


def selector_of(resource: Resource, query: Mapping[str, str], server: OlderServer) -> Selector:
    """The selectors of a list or watch; 400 for a field that the resource cannot be selected by."""
    fields = tuple(_term(term) for term in query.get("fieldSelector", "").split(",") if term)
    known = {"metadata.name", *resource.selectable} | ({"metadata.namespace"} if resource.namespaced else set())
    for path, _, _ in fields:
        if path not in known or path in server.selectors.get(resource.kind, ()):
            raise ApiStatusError(400, "BadRequest", f"field label not supported: {path}")
    labels: list[tuple[str, bool, str | None]] = []
    for term in query.get("labelSelector", "").split(","):
        if "=" in term:
            labels.append(_term(term))
        elif term:
            labels.append((term.removeprefix("!"), not term.startswith("!"), None))
    return Selector(fields, tuple(labels))


def _term(term: str) -> tuple[str, bool, str]:
    name, operator, value = re.split(r"(!=|==|=)", term, maxsplit=1)
    return name.strip(), operator != "!=", value.strip()


def _field(obj: Object, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)
