"""Says for which resource claims a pod waits: to be prepared before its containers start, and to be unprepared after
they have ended (node.md 4.16). volume has both done; nothing here calls a driver. Pure.
"""

from collections.abc import Collection

from bus.messages.resource_claims import ClaimState, PodClaim, PodClaims
from services.podsync.core.pod.claim_status import has_claims, needed_claims
from services.podsync.core.pod.device_need import shortened
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.time.timestamps import rfc3339

CLAIM_NOT_PREPARED = "ResourceClaimNotPrepared"  # reason of the condition


def unprepared_claims(needed: Collection[str], claims: PodClaims | None) -> tuple[PodClaim, ...]:
    """Return the claims that are not prepared: of those that a pod needs, and of those that volume has for it."""
    listed = claims.claims if claims is not None else ()
    known = {claim.name for claim in listed}
    waiting = [claim for claim in listed if claim.state is not ClaimState.PREPARED]
    waiting += [PodClaim(name=name, claim="", state=ClaimState.PENDING) for name in needed if name not in known]
    return tuple(waiting)


def describe_unprepared(tracked: TrackedPod) -> str:
    """Return for which claims the containers of the pod wait, as the end of a sentence that begins with "waits for"; ""
    = for none."""
    if tracked.claims is None and not has_claims(tracked.saved):
        return ""
    waiting = unprepared_claims(needed_claims(tracked.saved), tracked.claims)
    return f"resource claims: {_describe(waiting, 'prepared')}" if waiting else ""


def describe_failed(tracked: TrackedPod) -> str:
    """Return what `describe_unprepared` does, and "" while no claim has failed to be prepared."""
    listed = tracked.claims.claims if tracked.claims is not None else ()
    has_failed = any(claim.error and claim.state is ClaimState.ERROR for claim in listed)
    return describe_unprepared(tracked) if has_failed else ""


def holds_claims(tracked: TrackedPod) -> bool:
    """Return whether drivers may still have to unprepare claims of the pod, which has ended: its end is not shown
    before. volume says when that has failed for so long that nothing waits for it any longer."""
    if tracked.claims is not None:
        return not tracked.claims.overdue
    return not tracked.claims_known and has_claims(tracked.saved)


def describe_held(tracked: TrackedPod) -> str:
    """Return for which claims the end of the pod waits; "" = for none."""
    if not holds_claims(tracked):
        return ""
    if tracked.claims is None:
        return "the list of prepared resource claims"
    return f"resource claims to be unprepared: {_describe(tracked.claims.claims, 'unprepared')}"


def _describe(claims: Collection[PodClaim], wanted: str) -> str:
    return shortened([_describe_one(claim, wanted) for claim in claims], "; ")


def _describe_one(claim: PodClaim, wanted: str) -> str:
    what = claim.name or "that of extended resources"
    if claim.claim:
        what += f" (ResourceClaim {claim.claim})"
    return f"{what}, not {wanted} since {rfc3339(claim.since)}: {claim.error}" if claim.error else what
