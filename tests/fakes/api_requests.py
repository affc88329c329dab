"""What one request does to the objects of the API server's double: registry and admission, no faults, no waiting."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shared.kube import paths
from shared.kube.interface import ApiStatusError, PatchType
from shared.model.objects import Object
from shared.podspec.defaults import apply_defaults
from shared.podspec.qos import compute_qos_class
from shared.time.timestamps import rfc3339
from tests.fakes import api_node_rules as node_rules
from tests.fakes.api_resize import RefusedError, needed_features, resized, resources_of
from tests.fakes.api_resources import OlderServer, Resource, Target, selector_of, target_of
from tests.fakes.api_store import ApiStore
from tests.fakes.api_strategic_merge import merge_patch, strategic_merge
from tests.fakes.json_copy import json_copy

Answer = Callable[[Object], Object]  # the request as sent -> its status
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class ApiRequests:
    """Every request comes with its user; users that are nodes meet the node rules, all others may do anything.

    The answers to requests that are not stored can be replaced: by kind, a function from the request to its status.
    """

    def __init__(self, store: ApiStore, server: OlderServer) -> None:
        self.store, self.server = store, server
        self.answers: dict[str, Answer] = {
            "TokenReview": lambda _: {"authenticated": False},
            "SubjectAccessReview": lambda _: {"allowed": False},
            "TokenRequest": self._token,
        }
        self._numbers = itertools.count(1)

    def read(self, user: str, target: Target, query: Mapping[str, str]) -> Object:
        """GET of one object or of a list."""
        self._authorize(user, "get" if target.name else "list", target, query)
        cached = bool(query.get("resourceVersion"))
        if target.name:
            return self._present(target, cached=cached)
        selector = selector_of(target.resource, query, self.server)
        items = self.store.selected(target, selector, cached=cached)
        for item in items:  # as in every list of the API: only the list has their kind
            item.pop("kind", None)
            item.pop("apiVersion", None)
        revision = self.store.cache[0] if cached else self.store.revision
        resource, metadata = target.resource, {"resourceVersion": str(revision)}
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": items,
        }

    def may_watch(self, user: str, target: Target, query: Mapping[str, str]) -> None:
        """The authorization of a watch."""
        self._authorize(user, "watch", target, query)

    def create(self, user: str, target: Target, body: Object) -> Object:
        """POST: to a list, to a subresource, or a review."""
        self._authorize(user, "create", target, {})
        obj, resource = json_copy(body), target.resource
        if target.subresource == "token":
            node = node_rules.node_of(user)
            if node:
                restricted = self.server.version >= node_rules.TOKENS_FOR_NAMED_AUDIENCES_ALONE
                audiences = self._audiences if restricted else None
                node_rules.admit(user, "create", target, None, obj, self._pods(), audiences)
            self._present(target)
            return {**obj, "status": self.answers["TokenRequest"](obj)}
        if not resource.stored:
            return {**obj, "status": self.answers[resource.kind](obj)}
        metadata: Object = obj.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{next(self._numbers):05d}"
        if not metadata.get("name"):
            raise _invalid(target, "", "metadata.name: Required value: name or generateName is required")
        if resource.namespaced:
            if metadata.setdefault("namespace", target.namespace) != target.namespace:
                message = "the namespace of the provided object does not match the namespace sent on the request"
                raise ApiStatusError(400, "BadRequest", message)
            self._in_a_namespace(target)
        if metadata.get("resourceVersion"):
            raise ApiStatusError(500, "InternalError", "resourceVersion should not be set on objects to be created")
        self._prepare_new(resource, obj)
        if resource.kind == "CertificateSigningRequest":
            obj["spec"], obj["status"] = {**obj.get("spec", {}), "username": user}, {}
        if node_rules.node_of(user):
            node_rules.admit(user, "create", target, None, obj, self._pods())
        own = target.named(metadata["name"])
        if self.store.get(own.key) is not None:
            details = _details(own)
            message = f'{resource.qualified} "{metadata["name"]}" already exists'
            raise ApiStatusError(409, "AlreadyExists", message, details=details)
        return self.store.put(own.key, obj)

    def update(self, user: str, target: Target, body: Object) -> Object:
        """PUT."""
        self._authorize(user, "update", target, {})
        present = self._present_to(target)
        obj = json_copy(body)
        version = obj.get("metadata", {}).get("resourceVersion")
        if not version and not target.resource.unconditional_update:
            what = "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
            raise _invalid(target, target.name, what)
        return self._write(user, "update", target, present, obj)

    def patch(self, user: str, target: Target, body: Any, kind: PatchType) -> Object:
        """PATCH."""
        self._authorize(user, "patch", target, {})
        present = self._present_to(target)
        if not isinstance(body, dict) or kind is PatchType.JSON:
            message = "the body of the request was in an unknown format"
            raise ApiStatusError(415, "UnsupportedMediaType", message)
        body = json_copy(body)
        try:
            if kind is PatchType.MERGE:
                obj = merge_patch(present, body)
            else:
                obj = strategic_merge(target.resource.kind, present, body)
        except ValueError as error:
            raise ApiStatusError(400, "BadRequest", str(error)) from None
        return self._write(user, "patch", target, present, obj)

    def delete(self, user: str, target: Target, options: Object) -> Object:
        """DELETE: at once, or marked until the node is done or the finalizers are gone."""
        self._authorize(user, "delete", target, {})
        obj = self._present(target)
        if node_rules.node_of(user):
            node_rules.admit(user, "delete", target, obj, obj, self._pods())
        _check_preconditions(target, obj, options.get("preconditions") or {})
        metadata: Object = obj["metadata"]
        grace = self._grace(target.resource, obj, options)
        if metadata.get("deletionTimestamp") is not None:
            if grace >= metadata.get("deletionGracePeriodSeconds", 0) > 0:
                return obj
        elif metadata.get("generation"):
            metadata["generation"] += 1
        if grace > 0 or metadata.get("finalizers"):
            metadata["deletionTimestamp"] = rfc3339(self.store.clock.wall() + grace)
            metadata["deletionGracePeriodSeconds"] = grace
            return self.store.put(target.key, obj)
        gone = self.store.remove(target.key)
        if target.resource.kind in ("Pod", "Namespace"):
            return gone
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": _details(target)}

    def delete_collection(self, user: str, target: Target, query: Mapping[str, str]) -> Object:
        """DELETE of the objects of a list that the selectors in the query fit, each at once; the list of them."""
        self._authorize(user, "deletecollection", target, query)
        items = self.store.selected(target, selector_of(target.resource, query, self.server))
        for item in items:
            own = target.named(item["metadata"]["name"])
            if node_rules.node_of(user):
                node_rules.admit(user, "delete", own, item, item, self._pods())
            self.store.remove(own.key)
        resource, metadata = target.resource, {"resourceVersion": str(self.store.revision)}
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": items,
        }

    def _write(self, user: str, verb: str, target: Target, present: Object, obj: Object) -> Object:
        """A changed object on its way to the store."""
        obj = json_copy(obj)  # a patched one shares what it left alone with the present one
        new: Object = obj.setdefault("metadata", {})
        old: Object = present["metadata"]
        if new.get("uid") and new["uid"] != old["uid"]:
            if verb == "patch":  # only a whole object's uid is a precondition, a patch runs into the validation
                why = f'metadata.uid: Invalid value: "{new["uid"]}": field is immutable'
                raise _invalid(target, target.name, why)
            why = f"Precondition failed: UID in precondition: {new['uid']}, UID in object meta: {old['uid']}"
            raise _conflict(target, why)
        if (version := new.get("resourceVersion")) and version != old["resourceVersion"]:
            raise _conflict(target, _MODIFIED)
        if new.get("name") != old["name"]:
            message = f"the name of the object ({new.get('name')}) does not match the name on the URL ({old['name']})"
            raise ApiStatusError(400, "BadRequest", message)
        kept = (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "namespace",
        )
        for field in kept:
            new.pop(field, None)
            if field in old:
                new[field] = old[field]
        resource = target.resource
        obj["kind"], obj["apiVersion"] = resource.kind, resource.api_version
        self.server.drop(resource.kind, obj)
        if target.subresource == "resize":
            obj = self._resized(target, present, obj)
            new = obj["metadata"]
        elif resource.kind == "Pod" and target.subresource != "status" and resources_of(obj) != resources_of(present):
            what = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
            raise _invalid(target, target.name, what)
        if resource.has_status:
            taken = "spec" if target.subresource in ("status", "approval") else "status"
            obj.pop(taken, None)
            if taken in present:
                obj[taken] = present[taken]
            if target.subresource == "status" and resource.kind == "Pod":
                _keep(new, old, "ownerReferences")
        if resource.kind == "Pod" and obj.get("spec") != present.get("spec") and "generation" in new:
            new["generation"] += 1
        if node_rules.node_of(user):
            node_rules.admit(user, verb, target, present, obj, self._pods())
        finished = new.get("deletionTimestamp") and not new.get("deletionGracePeriodSeconds")
        if finished and not new.get("finalizers"):
            self.store.put(target.named(target.name).key, obj)
            return self.store.remove(target.named(target.name).key)
        return self.store.put(target.named(target.name).key, obj)

    def _resized(self, target: Target, present: Object, sent: Object) -> Object:
        """The pod after a request to its `resize`, whose metadata may not change."""
        try:
            pod = resized(present, sent)
        except RefusedError as error:
            raise _invalid(target, target.name, str(error)) from None
        needed = needed_features(present, pod)
        node = self.store.get(paths.node(str(present["spec"].get("nodeName", "")))) if needed else None
        if node is not None:
            missing = [name for name in needed if name not in (node.get("status", {}).get("declaredFeatures") or ())]
            if missing:
                what = f"pod update requires features {', '.join(missing)} which are not available on the node"
                message = f'{target.resource.qualified} "{target.name}" is forbidden: {what}'
                raise ApiStatusError(403, "Forbidden", message, details=_details(target))
        return {**pod, "metadata": dict(present["metadata"])}

    def _prepare_new(self, resource: Resource, obj: Object) -> None:
        metadata = obj["metadata"]
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
            metadata.pop(field, None)
        metadata.update(self.store.identity())
        obj["kind"], obj["apiVersion"] = resource.kind, resource.api_version
        if resource.kind == "Pod":
            apply_defaults(obj)
            obj["status"] = {"phase": "Pending", "qosClass": str(compute_qos_class(obj))}
            if self.server.pod_generation:
                metadata["generation"] = 1
        elif resource.kind == "Namespace":
            obj["status"] = {"phase": "Active"}
        elif resource.kind == "Node":
            obj["spec"], obj["status"] = obj.get("spec") or {}, obj.get("status") or {}
        elif resource.kind == "Secret":
            obj.setdefault("type", "Opaque")
        self.server.drop(resource.kind, obj)

    def _grace(self, resource: Resource, obj: Object, options: Object) -> int:
        if resource.kind != "Pod":
            return 0
        spec, phase = obj.get("spec", {}), obj.get("status", {}).get("phase")
        if not spec.get("nodeName") or phase in ("Failed", "Succeeded"):
            return 0
        wanted = options.get("gracePeriodSeconds")
        grace = int(spec.get("terminationGracePeriodSeconds", 30) if wanted is None else wanted)
        return 1 if grace < 0 else grace

    def _present(self, target: Target, *, cached: bool = False) -> Object:
        obj = self.store.get(target.named(target.name).key, cached=cached)
        if obj is None:
            message = f'{target.resource.qualified} "{target.name}" not found'
            raise ApiStatusError(404, "NotFound", message, details=_details(target))
        return obj

    def _present_to(self, target: Target) -> Object:
        """The object that a write changes; 404 for a subresource that the server does not have."""
        if target.subresource == "resize" and not (target.resource.kind == "Pod" and self.server.resizes_pods):
            raise ApiStatusError(404, "NotFound", "the server could not find the requested resource")
        return self._present(target)

    def _in_a_namespace(self, target: Target) -> None:
        found = self.store.get(f"/api/v1/namespaces/{target.namespace}")
        if found is None:
            details = {"name": target.namespace, "kind": "namespaces"}
            raise ApiStatusError(404, "NotFound", f'namespaces "{target.namespace}" not found', details=details)
        if found["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            raise ApiStatusError(403, "Forbidden", f"{target.resource.qualified} is forbidden: {why}")

    def _authorize(self, user: str, verb: str, target: Target, query: Mapping[str, str]) -> None:
        if node_rules.node_of(user):
            selector = query.get("fieldSelector", "")
            by_name = [t.partition("=")[2] for t in selector.split(",") if "metadata.name=" in t]
            wanted = target.name or (by_name[0].lstrip("=") if by_name else "")
            own = self.store.get(paths.node(node_rules.node_of(user)))
            pods, version = self._pods(), self.server.version
            node_rules.authorize(user, verb, target, wanted, pods, own, selector=selector, version=version)

    def _pods(self) -> Iterable[Object]:
        return (obj for _, obj in self.store.below(target_of(paths.PODS)))

    def _audiences(self, pod: Object) -> set[str]:
        """The audiences that the volumes of a pod name, "" for the API server's own: of projected tokens, and of the
        CSI drivers of its inline volumes and claims."""
        found, drivers = set[str](), set[str]()
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            sources = (volume.get("projected") or {}).get("sources") or ()
            tokens = [source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source]
            found |= {token.get("audience") or "" for token in tokens}
            drivers.add((volume.get("csi") or {}).get("driver", ""))
            drivers.add(self._driver_of_claim(pod, volume))
        for name in drivers - {""}:
            driver = self.store.get(f"{paths.CSI_DRIVERS}/{name}") or {}
            requests = (driver.get("spec") or {}).get("tokenRequests") or ()
            found |= {request.get("audience") or "" for request in requests}
        return found

    def _driver_of_claim(self, pod: Object, volume: Object) -> str:
        metadata = pod["metadata"]
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        if "ephemeral" in volume:
            claim = f"{metadata['name']}-{volume['name']}"
        if not claim:
            return ""
        bound = self.store.get(paths.persistent_volume_claim(metadata["namespace"], claim)) or {}
        name = (bound.get("spec") or {}).get("volumeName", "")
        volumes = self.store.get(paths.persistent_volume(name)) if name else None
        return str((((volumes or {}).get("spec") or {}).get("csi") or {}).get("driver", ""))

    def _token(self, request: Object) -> Object:
        seconds = int((request.get("spec") or {}).get("expirationSeconds") or 3600)
        expires = rfc3339(self.store.clock.wall() + seconds)
        return {"token": f"token-{next(self._numbers)}", "expirationTimestamp": expires}


def _keep(new: Object, old: Object, field: str) -> None:
    new.pop(field, None)
    if field in old:
        new[field] = old[field]


def _check_preconditions(target: Target, obj: Object, preconditions: Object) -> None:
    metadata = obj["metadata"]
    for field, text, fate in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        wanted = preconditions.get(field)
        if wanted is not None and wanted != metadata[field]:
            why = (
                f"the {text} in the precondition ({wanted}) does not match the {text} in record ({metadata[field]}). "
                f"The object might have been {fate}"
            )
            raise _conflict(target, why)


def _details(target: Target) -> Object:
    group = {"group": target.resource.group} if target.resource.group else {}
    return {"name": target.name, **group, "kind": target.resource.plural}


def _conflict(target: Target, why: str) -> ApiStatusError:
    message = f'Operation cannot be fulfilled on {target.resource.qualified} "{target.name}": {why}'
    return ApiStatusError(409, "Conflict", message, details=_details(target))


def _invalid(target: Target, object_name: str, why: str) -> ApiStatusError:
    resource = target.resource
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return ApiStatusError(422, "Invalid", f'{kind} "{object_name}" is invalid: {why}', details=_details(target))
