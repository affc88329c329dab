"""Turns the resource claims of this node into the Go kubelet's checkpoint, and a checkpoint into claims (node.md 4.14);
pure.

The checkpoint names neither the boot of the machine nor the names of claims within pods. So its claims count as those
for which each driver was called, and they get their names once the pod is known.
"""

from collections.abc import Iterable

from services.volume.core.resource_claims.claim import Claim, Part, PartState, Use
from services.volume.core.resource_claims.dra_state import ClaimDevice, PreparedClaim, read_dra_state, write_dra_state
from services.volume.core.resource_claims.driver_checks import Device


def write_checkpoint(claims: Iterable[Claim]) -> bytes:
    """Return the content of the checkpoint."""
    return write_dra_state(tuple(_prepared(claim) for claim in claims))


def read_checkpoint(content: bytes) -> tuple[Claim, ...]:
    """Return the claims of a checkpoint. Raises CheckpointError."""
    return tuple(_claim(prepared) for prepared in read_dra_state(content))


def _prepared(claim: Claim) -> PreparedClaim:
    """Return the claim as the Go kubelet has it: a list without entries is none."""
    return PreparedClaim(
        uid=claim.uid,
        name=claim.name,
        namespace=claim.namespace,
        pod_uids=frozenset(claim.pods),
        drivers={
            driver: tuple(
                ClaimDevice(
                    pool=device.pool,
                    device=device.device,
                    share_id=device.share_id,
                    requests=device.requests or None,
                    cdi_ids=device.cdi_devices or None,
                )
                for device in part.devices
            )
            or None
            for driver, part in claim.parts.items()
        },
    )


def _claim(prepared: PreparedClaim) -> Claim:
    return Claim(
        uid=prepared.uid,
        name=prepared.name,
        namespace=prepared.namespace,
        pods={uid: Use() for uid in sorted(prepared.pod_uids)},
        parts={
            driver: Part(
                state=PartState.CALLED,
                devices=tuple(
                    Device(
                        pool=device.pool,
                        device=device.device,
                        share_id=device.share_id,
                        requests=device.requests or (),
                        cdi_devices=device.cdi_ids or (),
                    )
                    for device in devices or ()
                ),
            )
            for driver, devices in prepared.drivers.items()
        },
    )
