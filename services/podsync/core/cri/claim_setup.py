"""Decides which CDI devices a container gets of the resource claims of its pod (node.md 4.16, pods.md 6.2)."""

from collections.abc import Collection

from bus.messages.resource_claims import PodClaims
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.pod.awaited_claims import unprepared_claims
from services.podsync.core.pod.claim_devices import cdi_devices
from shared.model.objects import Object


def claim_devices(container: Object, needed: Collection[str], claims: PodClaims | None) -> tuple[str, ...]:
    """Return the names of the CDI devices. `needed`: the claims that the pod needs; `claims`: as volume has published
    them. Raises ContainerConfigError where one is not prepared: the container would start without its devices."""
    for claim in unprepared_claims(needed, claims):
        what = f"resource claim {claim.name}" if claim.name else "the resource claim of extended resources"
        raise ContainerConfigError(f"{what} is not prepared")
    return cdi_devices(container, claims)
