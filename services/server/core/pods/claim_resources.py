"""Decides which devices of resource claims the PodResources API lists for a container (node.md 8.3)."""

from msgspec import Struct

from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim, PodClaims
from shared.model.objects import Object


class ClaimEntry(Struct, frozen=True):
    """Has one prepared claim, with the devices of it that the container has."""

    claim: str
    devices: tuple[ClaimDevice, ...]


def claim_entries(container: Object, claims: PodClaims | None) -> tuple[ClaimEntry, ...]:
    """Return the prepared claims of the container. `claims`: those of its pod; None = it has none."""
    prepared = (claim for claim in (claims.claims if claims is not None else ()) if claim.state is ClaimState.PREPARED)
    found = ((claim, _requests(container, claim)) for claim in prepared)
    return tuple(ClaimEntry(claim.claim, _devices(claim, requests)) for claim, requests in found if requests)


def _requests(container: Object, claim: PodClaim) -> tuple[str, ...]:
    """Return the requests of the claim whose devices the container has; "" stands for all of them."""
    if not claim.name:  # that of extended resources
        return tuple(claim.containers.get(str(container.get("name") or ""), ()))
    entries = (container.get("resources") or {}).get("claims") or ()
    return tuple(str(entry.get("request") or "") for entry in entries if entry.get("name") == claim.name)


def _devices(claim: PodClaim, requests: tuple[str, ...]) -> tuple[ClaimDevice, ...]:
    wanted = set(requests)
    return tuple(
        device for device in claim.devices if "" in wanted or not device.requests or wanted & set(device.requests)
    )
