"""Makes the item of a pod in `claims.prepared`; pure."""

from collections.abc import Iterable, Mapping

from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim, PodClaims
from services.volume.core.resource_claims.claim import Claim
from services.volume.core.resource_claims.claim_failures import Failures
from services.volume.core.resource_claims.device_health import DeviceHealth
from services.volume.core.resource_claims.pod_claims import RequestedClaim
from shared.model.frozen_copy import replace

MAX_UNPREPARE_SECONDS = 300.0  # of failures, after which nothing needs to wait for the claims of a pod
_NO_ERROR = ("", 0.0)

Errors = Mapping[str, tuple[str, float]]  # text, and since when, by the name of the claim within the pod


def running_pod(
    uid: str, requested: Iterable[RequestedClaim], held: Mapping[str, Claim], errors: Errors
) -> PodClaims | None:
    """Return the item of a pod that is to run, or of which nothing is known; None = it has no claims. `held`: the
    claims that it has got, by their names within the pod."""
    waiting = {each.name: each for each in requested}
    claims = [
        _held(uid, name, held[name], errors) if name in held else _waiting(waiting[name], errors)
        for name in (*waiting, *sorted(held.keys() - waiting.keys()))
    ]
    return PodClaims(uid=uid, claims=tuple(claims)) if claims else None


def ended_pod(uid: str, held: Mapping[str, Claim], failures: Mapping[str, Failures], now: float) -> PodClaims | None:
    """Return the item of a pod that has ended; None = its claims are unprepared. `failures`: of unpreparing."""
    if not held:
        return None
    claims = []
    for name, claim in sorted(held.items()):
        error, since = failures[name].errors.get("", _NO_ERROR)
        state = ClaimState.UNPREPARING
        claims.append(PodClaim(name=name, claim=claim.name, state=state, uid=claim.uid, error=error, since=since))
    overdue = all(is_overdue(each, now) for each in failures.values())
    return PodClaims(uid=uid, claims=tuple(claims), overdue=overdue)


def is_overdue(failures: Failures, now: float) -> bool:
    """Return whether unpreparing has failed for so long that nothing needs to wait for it."""
    return failures.count > 0 and now - failures.began >= MAX_UNPREPARE_SECONDS


def with_health(item: PodClaims, health: DeviceHealth, now: float) -> PodClaims:
    """Return the item with the health of the devices, as far as their drivers report it."""
    return replace(item, claims=tuple(replace(claim, devices=_healthy(claim, health, now)) for claim in item.claims))


def _healthy(claim: PodClaim, health: DeviceHealth, now: float) -> tuple[ClaimDevice, ...]:
    states = [health.state(device.driver, device.pool, device.device, now) for device in claim.devices]
    return tuple(
        device if state is None else replace(device, health=state.health, message=state.message)
        for device, state in zip(claim.devices, states, strict=True)
    )


def _held(uid: str, name: str, claim: Claim, errors: Errors) -> PodClaim:
    error, since = _NO_ERROR if claim.is_prepared else errors.get(name, _NO_ERROR)
    return PodClaim(
        name=name,
        claim=claim.name,
        state=ClaimState.PREPARED if claim.is_prepared else _unprepared(error),
        uid=claim.uid,
        devices=claim.devices if claim.is_prepared else (),
        containers=dict(claim.pods[uid].containers),
        error=error,
        since=since,
    )


def _waiting(requested: RequestedClaim, errors: Errors) -> PodClaim:
    error, since = errors.get(requested.name, _NO_ERROR)
    return PodClaim(name=requested.name, claim=requested.claim, state=_unprepared(error), error=error, since=since)


def _unprepared(error: str) -> ClaimState:
    return ClaimState.ERROR if error else ClaimState.PENDING
