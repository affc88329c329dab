"""Selects the devices that a container gets of the resource claims of its pod (node.md 4.16). Pure."""

from collections.abc import Iterator

from bus.messages.resource_claims import ClaimDevice, PodClaim, PodClaims
from services.podsync.core.pod.claim_status import EXTENDED
from shared.model.objects import Object

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"  # values of `ClaimDevice.health`


def cdi_devices(container: Object, claims: PodClaims | None) -> tuple[str, ...]:
    """Return the CDI devices of the container, each once: in the order of the claims, and of the container's requests
    of each."""
    found = (name for _, device in devices_of_container(container, claims) for name in device.cdi_devices)
    return tuple(dict.fromkeys(found))


def devices_of_container(container: Object, claims: PodClaims | None) -> Iterator[tuple[PodClaim, ClaimDevice]]:
    """Yield the devices of the container with their claims, a device once for each request that it serves."""
    for claim in claims.claims if claims is not None else ():
        for request in _requests(container, claim):
            for device in devices_of_request(claim, request):
                yield claim, device


def devices_of_request(claim: PodClaim, request: str) -> tuple[ClaimDevice, ...]:
    """Return the devices of the claim that serve the request; "" = all."""
    return tuple(device for device in claim.devices if not request or not device.requests or request in device.requests)


def _requests(container: Object, claim: PodClaim) -> tuple[str, ...]:
    """Return the requests of the claim whose devices the container has; "" stands for all of them."""
    if claim.name == EXTENDED:
        return claim.containers.get(str(container.get("name") or ""), ())
    entries = (container.get("resources") or {}).get("claims") or ()
    return tuple(str(entry.get("request") or "") for entry in entries if entry.get("name") == claim.name)
