"""Decides which resource claims a pod needs, and whether it may use a claim, with the kubelet's texts (node.md 4.16);
pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from shared.model.objects import Object

EXTENDED = ""  # name, within a pod, of the claim for its extended resources


class ClaimError(Exception):
    """Says why a pod cannot have a claim; `str()` is one line."""


class PodIdentity(Struct, frozen=True, kw_only=True):
    """Names a pod."""

    uid: str
    name: str
    namespace: str


class RequestedClaim(Struct, frozen=True, kw_only=True):
    """Has a claim that a pod needs. `name`: within the pod; `claim`: name of the ResourceClaim, "" where there is an
    `error`; `owned`: it was made for the pod alone; `containers`: container -> requests, of extended resources."""

    name: str
    claim: str = ""
    owned: bool = False
    containers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    error: str = ""


class AllocatedClaim(Struct, frozen=True, kw_only=True):
    """Has a claim as the API server has it. `drivers`: names of those with a part in it, sorted."""

    uid: str
    name: str
    namespace: str
    drivers: tuple[str, ...]


def requested_claims(identity: PodIdentity, pod: Object) -> tuple[RequestedClaim, ...]:
    """Return the claims that the pod needs, given its spec and status. One for which a template's controller has
    decided that none is needed is not among them."""
    return tuple(_requested(identity, pod))


def _requested(identity: PodIdentity, pod: Object) -> Iterator[RequestedClaim]:
    status = pod.get("status") or {}
    created = {each.get("name"): each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    where = f'pod "{identity.namespace}/{identity.name}"'
    for each in (pod.get("spec") or {}).get("resourceClaims") or ():
        name = str(each.get("name") or "")
        if each.get("resourceClaimName"):
            yield RequestedClaim(name=name, claim=str(each["resourceClaimName"]))
        elif not each.get("resourceClaimTemplateName"):
            error = f'{where}, spec.resourceClaim "{name}": none of the supported fields are set'
            yield RequestedClaim(name=name, error=error)
        elif name not in created:
            yield RequestedClaim(name=name, error=f"{where}: ResourceClaim not created yet")
        elif created[name]:
            yield RequestedClaim(name=name, claim=str(created[name]), owned=True)
    extended = status.get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName"):
        containers = _containers(extended)
        yield RequestedClaim(name=EXTENDED, claim=str(extended["resourceClaimName"]), owned=True, containers=containers)


def _containers(extended: Object) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for mapping in extended.get("requestMappings") or ():
        container, request = str(mapping.get("containerName") or ""), str(mapping.get("requestName") or "")
        found[container] = (*found.get(container, ()), request)
    return found


def allocated_claim(pod: PodIdentity, requested: RequestedClaim, claim: Object) -> AllocatedClaim:
    """Return the claim that the API server has, if the pod may use it. Raises ClaimError."""
    metadata, status = claim.get("metadata") or {}, claim.get("status") or {}
    uid = str(metadata.get("uid") or "")
    where = f"{pod.namespace}/{requested.claim}"
    if requested.owned and not any(_is_owner(owner, pod) for owner in metadata.get("ownerReferences") or ()):
        text = f"ResourceClaim {where} was not created for pod {pod.namespace}/{pod.name} (pod is not owner)"
        raise ClaimError(text)
    if not any(
        user.get("uid") == pod.uid and user.get("resource") == "pods" for user in status.get("reservedFor") or ()
    ):
        raise ClaimError(f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {requested.claim} ({uid})")
    allocation = status.get("allocation")
    if not uid or not isinstance(allocation, dict):
        raise ClaimError(f"claim {where}: not allocated")
    results: list[Any] = (allocation.get("devices") or {}).get("results") or []
    drivers = sorted({str(result["driver"]) for result in results if result.get("driver")})
    return AllocatedClaim(uid=uid, name=requested.claim, namespace=pod.namespace, drivers=tuple(drivers))


def _is_owner(owner: Object, pod: PodIdentity) -> bool:
    return bool(owner.get("controller")) and owner.get("uid") == pod.uid
