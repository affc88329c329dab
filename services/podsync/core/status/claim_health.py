"""Computes the part of `allocatedResourcesStatus` of a container's status that is about resource claims: the health of
their devices as their drivers report it (node.md 4.16). Like the kubelet's, only statuses of regular containers have
it.
"""

from collections.abc import Iterable
from typing import Any

from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaims
from services.podsync.core.pod.claim_devices import devices_of_request
from services.podsync.core.status.device_status import FIELD, UNKNOWN

Json = dict[str, Any]
_PREFIX = "claim:"


def with_claim_health(
    status: Json, before: Json, spec: Json, claims: PodClaims | None, *, messages: bool = True
) -> Json:
    """Return the container's status with the health of the devices of its resource claims. Where a claim is not known
    as prepared, as while volume restarts, what the status showed `before` stays. `messages`: also what drivers say of
    the health."""
    entries = (spec.get("resources") or {}).get("claims") or ()
    if not entries:
        return status
    prepared = {claim.name: claim for claim in (claims.claims if claims is not None else ())}
    shown = {entry.get("name"): entry for entry in before.get(FIELD) or ()}
    others = [entry for entry in status.get(FIELD) or () if not str(entry.get("name")).startswith(_PREFIX)]
    found: dict[str, Json] = {}
    for entry in entries:
        name, request = str(entry.get("name") or ""), str(entry.get("request") or "")
        of_request = f"{_PREFIX}{name}/{request}" if request else f"{_PREFIX}{name}"
        claim = prepared.get(name)
        if claim is not None and claim.state is ClaimState.PREPARED:
            devices = devices_of_request(claim, request)
            found[of_request] = {"name": of_request, "resources": _resources(devices, messages=messages)}
        elif of_request in shown:
            found[of_request] = shown[of_request]
    return status | {FIELD: [*others, *found.values()]} if found else status


def _resources(devices: Iterable[ClaimDevice], *, messages: bool) -> list[Json]:
    """Return the health by device; the first of several devices with the same id counts."""
    resources: dict[str, Json] = {}
    for device in devices:
        resource = device.cdi_devices[0] if device.cdi_devices else f"{device.driver}/{device.pool}/{device.device}"
        health: Json = {"resourceID": resource, "health": device.health or UNKNOWN}
        if messages and device.message:
            health["message"] = device.message
        resources.setdefault(resource, health)
    return list(resources.values())
