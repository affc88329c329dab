"""Says which resource claims a pod needs, by its spec and by what the API server's status of the pod names (node.md
4.16). volume prepares them, and decides whether the pod may have them. Pure.
"""

from typing import Any

from services.podsync.core.pod.saved import Saved
from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object
from shared.podspec.resources import main_containers

EXTENDED = ""  # name, within a pod, of the claim for its extended resources
_STATUSES, _EXTENDED_STATUS, _MAPPINGS = "resourceClaimStatuses", "extendedResourceClaimStatus", "requestMappings"
_MAPPING = ("containerName", "resourceName", "requestName")


def claim_status(status: Any) -> Object:
    """Return the parts of a pod's status that name its claims, without values of a wrong type; {} = it names none."""
    whole = dictionary(status)
    found: Object = {}
    created = [
        {key: entry[key] for key in ("name", "resourceClaimName") if text(entry.get(key))}
        for entry in dictionaries(whole.get(_STATUSES))
        if text(entry.get("name"))
    ]
    if created:
        found[_STATUSES] = created
    extended = dictionary(whole.get(_EXTENDED_STATUS))
    if name := text(extended.get("resourceClaimName")):
        mappings = [
            {key: entry[key] for key in _MAPPING}
            for entry in dictionaries(extended.get(_MAPPINGS))
            if all(text(entry.get(key)) for key in _MAPPING)
        ]
        found[_EXTENDED_STATUS] = {"resourceClaimName": name, _MAPPINGS: mappings}
    return found


def needed_claims(saved: Saved) -> tuple[str, ...]:
    """Return the claims that the pod needs, by their names within it. One for which the controller of its template has
    decided that none is needed is not among them."""
    created = {entry["name"]: entry.get("resourceClaimName") for entry in saved.claim_status.get(_STATUSES) or ()}
    names = []
    for claim in (saved.pod.get("spec") or {}).get("resourceClaims") or ():
        name = str(claim.get("name") or "")
        if claim.get("resourceClaimName") or name not in created or created[name]:
            names.append(name)
    if _EXTENDED_STATUS in saved.claim_status:
        names.append(EXTENDED)
    return tuple(names)


def has_claims(saved: Saved) -> bool:
    """Return whether the pod may have a claim."""
    return bool((saved.pod.get("spec") or {}).get("resourceClaims") or saved.claim_status)


def with_claim_status(saved: Saved) -> Object:
    """Return the pod with the parts of its status that name its claims; the same object where there are none."""
    return {**saved.pod, "status": saved.claim_status} if saved.claim_status else saved.pod


def without_claimed_resources(pod: Object) -> Object:
    """Return the pod without those extended resources of its containers that a claim backs, as its status says; the
    same object where there are none. No device plugin is asked for these, and they take none of the Node's amounts."""
    extended = claim_status(pod.get("status")).get(_EXTENDED_STATUS) or {}
    claimed = {(entry["containerName"], entry["resourceName"]) for entry in extended.get(_MAPPINGS) or ()}
    if not any(container.get("name") in {name for name, _ in claimed} for container in main_containers(pod)):
        return pod
    spec = dict(pod["spec"])
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            spec[kind] = [_without(container, claimed) for container in spec[kind]]
    return {**pod, "spec": spec}


def _without(container: Object, claimed: set[tuple[str, str]]) -> Object:
    own = {resource for name, resource in claimed if name == container.get("name")}
    if not own:
        return container
    resources = dict(container.get("resources") or {})
    for kind in ("limits", "requests"):
        if resources.get(kind):
            resources[kind] = {name: amount for name, amount in resources[kind].items() if name not in own}
    return {**container, "resources": resources}
