"""Decides which resource claims are prepared and unprepared now: compares the claims of the pods that are to run
with those that the drivers have prepared (node.md 4.16); pure.

A claim that a pod has got stays the pod's until the pod has ended, whatever becomes of the ResourceClaim. The use by
the last pod stays until the claim is unprepared. Times are seconds of one monotonic clock, except `wall`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from bus.messages.resource_claims import PodClaims
from services.volume.core.resource_claims.claim import Claim, ClaimKey, Part, PartState
from services.volume.core.resource_claims.claim_failures import Failures
from services.volume.core.resource_claims.driver_checks import Device
from services.volume.core.resource_claims.kept_claims import KeptClaims
from services.volume.core.resource_claims.pod_claims import AllocatedClaim, ClaimError, PodIdentity, RequestedClaim
from services.volume.core.resource_claims.shown_claims import ended_pod, is_overdue, running_pod

_PREPARE, _UNPREPARE = "prepare dynamic resources: ", "unprepare dynamic resources: "


@dataclass
class _Pod:
    identity: PodIdentity
    requested: tuple[RequestedClaim, ...]
    starts: bool  # what is not prepared yet is prepared
    failures: Failures = field(default_factory=Failures)


class ClaimsOfNode:
    """Keeps the pods that are to run, and the claims. `key` of a claim: its namespace and name."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._needing: set[str] = set()  # UIDs of those that need a claim
        self._ended: set[str] = set()  # UIDs of pods that have ended and use a claim
        self._claims = KeptClaims()
        self._unprepare: dict[ClaimKey, Failures] = {}
        # Claims of pods (UIDs) that are not shown as prepared before the record has them so, with their use by the pod.
        self._unsaved: set[tuple[str, ClaimKey]] = set()
        self._knows_all = False  # every pod that is not among `_pods` has ended

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Return the claims, for the record."""
        return self._claims.all()

    # Pods.

    def restored(self, claims: Iterable[Claim]) -> None:
        """Take the claims of the record."""
        for claim in claims:
            if self._claims.get(claim.key) is None:
                self._claims.put(claim)
        for pod in self._pods.values():
            self._name_uses(pod)

    def set_pod(self, identity: PodIdentity, requested: tuple[RequestedClaim, ...], *, starts: bool) -> None:
        """Note that the pod is to run with these claims, beside those that it has got; not `starts`: it is ending, and
        gets no more."""
        pod = self._pods.get(identity.uid)
        if pod is not None and pod.requested != requested:
            pod.failures.retry()
        failures = pod.failures if pod is not None else Failures()
        self._pods[identity.uid] = pod = _Pod(identity, requested, starts, failures)
        (self._needing.add if requested else self._needing.discard)(identity.uid)
        self._ended.discard(identity.uid)
        self._name_uses(pod)

    def end_pod(self, uid: str) -> None:
        """Note that the containers of the pod are gone."""
        self.withdraw_pod(uid)
        if uid in self._claims.pods():
            self._ended.add(uid)

    def withdraw_pod(self, uid: str) -> None:
        """Note that nothing is known of the pod any more. It counts as ended once every pod is known."""
        self._pods.pop(uid, None)
        self._needing.discard(uid)

    def set_freshness(self, *, complete: bool, stale: bool) -> None:
        """Note whether every pod is known."""
        self._knows_all = complete and not stale

    def pod(self, uid: str) -> PodIdentity | None:
        """Return the pod if it is to run."""
        pod = self._pods.get(uid)
        return pod.identity if pod is not None else None

    def pods(self) -> set[str]:
        """Return the UIDs of the pods that need or use a claim."""
        return self._needing | self._claims.pods()

    @property
    def has_pods(self) -> bool:
        """Return whether a pod needs or uses a claim."""
        return bool(self._needing or self._claims.pods())

    def _name_uses(self, pod: _Pod) -> None:
        """Name the claims that another kubelet has prepared for the pod: it kept no names of claims within pods."""
        uid = pod.identity.uid
        for claim in self._claims.of_pod(uid):
            if not claim.pods[uid].names:
                for each in pod.requested:
                    if each.claim == claim.name:
                        claim = claim.used_by(uid, each.name, each.containers)
                self._claims.put(claim)

    # What is due.

    def pods_due(self, now: float) -> list[str]:
        """Return the UIDs of the pods with claims to prepare now."""
        return [uid for uid, pod in self._to_prepare() if pod.failures.not_before <= now]

    def claims_due(self, now: float) -> list[ClaimKey]:
        """Return the claims to unprepare now."""
        return [key for key in self._to_unprepare() if self._failures(key).not_before <= now]

    def next_attempt(self, now: float) -> float:
        """Return when the next wait after a failure ends; infinity = none waits."""
        waits = [pod.failures.not_before for _, pod in self._to_prepare()]
        waits += [self._failures(key).not_before for key in self._to_unprepare()]
        return min((moment for moment in waits if moment > now), default=math.inf)

    def _to_prepare(self) -> Iterator[tuple[str, _Pod]]:
        for uid, pod in self._pods.items():
            held = self._held(uid)
            lacks = any(each.name not in held for each in pod.requested)
            if pod.starts and (lacks or not all(claim.is_prepared for claim in held.values())):
                yield uid, pod

    def _to_unprepare(self) -> list[ClaimKey]:
        return [claim.key for claim in self._claims.all() if self.is_unused(claim)]

    def is_unused(self, claim: Claim) -> bool:
        """Return whether every pod that uses the claim is known to have ended."""
        return all(self._has_ended(uid) for uid in claim.pods)

    def _has_ended(self, uid: str) -> bool:
        return uid not in self._pods and (uid in self._ended or self._knows_all)

    # Preparing the claims of a pod.

    def unread(self, uid: str) -> tuple[RequestedClaim, ...]:
        """Return the claims of the pod that must be read first."""
        pod, held = self._pods.get(uid), self._held(uid)
        return tuple(each for each in pod.requested if each.name not in held) if pod is not None else ()

    def shares(self, uid: str) -> bool:
        """Return whether the pod needs a claim that others have got."""
        pod = self._pods.get(uid)
        if pod is None:
            return False
        keys = ((pod.identity.namespace, requested.claim) for requested in pod.requested)
        return any(claim is not None and claim.pods.keys() - {uid} for claim in map(self._claims.get, keys))

    def use(self, uid: str, requested: RequestedClaim, allocated: AllocatedClaim) -> None:
        """Give the claim to the pod. Raises ClaimError where one with the same name is not unprepared yet."""
        if uid not in self._pods:
            return
        key = (allocated.namespace, allocated.name)
        claim = self._claims.get(key)
        if claim is None:
            parts = dict.fromkeys(allocated.drivers, Part())
            claim = Claim(uid=allocated.uid, name=allocated.name, namespace=allocated.namespace, parts=parts)
        elif claim.uid != allocated.uid:
            text = f"old ResourceClaim with same name {claim.name} and different UID {claim.uid} still exists"
            raise ClaimError(f"{text} (previous pod force-deleted?!)")
        self._unprepare.pop(key, None)
        self._unsaved.add((uid, key))
        self._claims.put(claim.used_by(uid, requested.name, requested.containers))

    def held(self, uid: str) -> list[Claim]:
        """Return the claims that the pod has got."""
        return self._claims.of_pod(uid)

    def _held(self, uid: str) -> dict[str, Claim]:
        """Return the claims that the pod has got, by their names within the pod, as the record has them."""
        unsaved = self._unsaved
        claims = (each.unsettled() if (uid, each.key) in unsaved else each for each in self._claims.of_pod(uid))
        return {name: claim for claim in claims for name in claim.names(uid)}

    def to_call(self, uid: str) -> dict[str, list[Claim]]:
        """Return the drivers to call for the pod, each with the claims that it has not prepared; {} = it has ended."""
        calls: dict[str, list[Claim]] = {}
        for claim in self._claims.of_pod(uid) if uid in self._pods else ():
            for driver, part in claim.parts.items():
                if part.state is not PartState.PREPARED:
                    calls.setdefault(driver, []).append(claim)
        return calls

    def called(self, key: ClaimKey, driver: str) -> None:
        """Note that the driver is going to be called to prepare the claim."""
        claim = self._claims.get(key)
        devices = claim.parts[driver].devices if claim is not None and driver in claim.parts else ()
        self._put_part(key, driver, Part(state=PartState.CALLED, devices=devices))

    def prepared(self, key: ClaimKey, driver: str, devices: tuple[Device, ...]) -> None:
        """Note that the driver has prepared the claim, which is shown once the record has it: a kill before that has it
        prepared again."""
        self._put_part(key, driver, Part(state=PartState.PREPARED, devices=devices))
        if (claim := self._claims.get(key)) is not None:
            self._unsaved |= {(uid, key) for uid in claim.pods}

    def recorded(self, claims: Iterable[Claim]) -> bool:
        """Note that the record has these claims, as they were when it was written; return whether a pod can be shown
        more of them."""
        before = len(self._unsaved)
        self._unsaved -= {(uid, claim.key) for claim in claims if claim.is_prepared for uid in claim.pods}
        return len(self._unsaved) < before

    def set_specifications(self, devices: Set[str]) -> list[tuple[Claim, str]]:
        """Note of which CDI devices the machine has specifications. Return the claims whose specifications were there
        and are lost, each with the driver that must prepare it again. A driver removes those of a claim that it
        unprepares."""
        lost = []
        for claim in self._claims.all():
            compared = claim.compared(devices)
            if compared is not claim and not self.is_unused(claim):
                self._claims.put(compared)
                was = {driver for driver, part in claim.parts.items() if part.specified}
                lost += [(claim, driver) for driver in sorted(was) if not compared.parts[driver].specified]
        return lost

    @property
    def has_cdi_devices(self) -> bool:
        """Return whether a driver has named CDI devices."""
        return any(part.cdi_devices for claim in self._claims.all() for part in claim.parts.values())

    def _put_part(self, key: ClaimKey, driver: str, part: Part) -> None:
        if (claim := self._claims.get(key)) is not None:
            self._claims.put(claim.with_part(driver, part))

    def pod_failed(self, uid: str, errors: Mapping[str, str], now: float, wall: float) -> None:
        """Note why claims of the pod are not prepared, by their names within the pod."""
        if (pod := self._pods.get(uid)) is not None:
            pod.failures.failed({name: f"{_PREPARE}{text}" for name, text in errors.items()}, now, wall)

    def pod_succeeded(self, uid: str) -> None:
        """Note that all claims of the pod that were to be prepared are prepared."""
        if (pod := self._pods.get(uid)) is not None:
            pod.failures = Failures()

    # Unpreparing a claim.

    def unused(self, key: ClaimKey) -> Claim | None:
        """Return the claim if it is to be unprepared."""
        claim = self._claims.get(key)
        return claim if claim is not None and self.is_unused(claim) else None

    def begin_unprepare(self, key: ClaimKey, driver: str) -> Claim | None:
        """Note that the driver is going to be called to unprepare the claim, and return the claim: a pod that gets it
        from now on has it prepared again, whatever the outcome of the call. None = a pod needs it, or the driver has
        unprepared it."""
        claim = self.unused(key)
        part = claim.parts.get(driver, Part()) if claim is not None else Part()
        if part.state is PartState.NEW:
            return None
        self._put_part(key, driver, part.unsettled())
        return claim

    def unprepared(self, key: ClaimKey, driver: str) -> None:
        """Note that the driver has unprepared the claim."""
        self._put_part(key, driver, Part())

    def unprepare_failed(self, key: ClaimKey, error: str, now: float, wall: float) -> bool:
        """Note why the claim is not unprepared, unless a pod has got it since; return whether that is new and no item
        of a pod shows it."""
        claim = self.unused(key)
        if claim is None:
            return False
        failures = self._unprepare.setdefault(key, Failures())
        before = failures.errors
        failures.failed({"": f"{_UNPREPARE}{error}"}, now, wall)
        return not claim.pods and failures.errors != before

    def overdue(self, now: float) -> list[tuple[str, str]]:
        """Return name and error of each claim that could not be unprepared for a long time."""
        late = [key for key in self._to_unprepare() if is_overdue(self._failures(key), now)]
        return [(key[1], self._failures(key).errors[""][0]) for key in late]

    def release(self) -> list[str]:
        """End the uses by pods that have ended, where the claim is used by others or all drivers have unprepared it;
        return the UIDs of these pods. A pod that waits for a claim with the name of one that is gone is tried now."""
        released, removed = [], set[ClaimKey]()
        for claim in self._claims.all():
            unused = self.is_unused(claim)
            if unused and any(part.state is not PartState.NEW for part in claim.parts.values()):
                continue
            gone = [uid for uid in claim.pods if self._has_ended(uid)]
            released += gone
            for uid in gone:
                claim = claim.without(uid)
                self._unsaved.discard((uid, claim.key))
            if unused:
                self._claims.remove(claim.key)
                self._unprepare.pop(claim.key, None)
                removed.add(claim.key)
            elif gone:
                self._claims.put(claim)
        self._ended.intersection_update(self._claims.pods())
        for pod in self._pods.values() if removed else ():
            if any((pod.identity.namespace, each.claim) in removed for each in pod.requested):
                pod.failures.retry()
        return released

    def retry(self, drivers: Set[str]) -> None:
        """Let what waits after a failure be tried now where these drivers have a part in it: they have come or gone."""
        for uid, pod in self._pods.items():
            if not drivers.isdisjoint(self.to_call(uid)):
                pod.failures.retry()
        for key, failures in self._unprepare.items():
            claim = self._claims.get(key)
            if claim is not None and not drivers.isdisjoint(claim.parts):
                failures.retry()

    def _failures(self, key: ClaimKey) -> Failures:
        return self._unprepare.get(key) or Failures()

    # What is published.

    def shown(self, uid: str, now: float) -> PodClaims | None:
        """Return the item of the pod; None = it has no claims."""
        pod, held = self._pods.get(uid), self._held(uid)
        if self._has_ended(uid):
            return ended_pod(uid, held, {name: self._failures(claim.key) for name, claim in held.items()}, now)
        if pod is None:
            return running_pod(uid, (), held, {})
        return running_pod(uid, pod.requested, held, pod.failures.errors)
