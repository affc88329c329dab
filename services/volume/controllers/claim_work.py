"""Prepares the resource claims of one pod, and unprepares one claim, step by step: reads, the record, and the calls of
drivers (node.md 4.16). The drivers of a pod or claim are called beside each other, and each has one call at a time for
a claim: one that hangs delays no pod that does not need it.

The record is saved before a driver is called, and after it has answered, before the claim is published as prepared.
Without a record no driver is called to prepare: a claim that nothing remembers would never be unprepared.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from services.volume.adapters.cluster_content import ClusterContent
from services.volume.controllers.claim_metrics import PREPARE, UNPREPARE
from services.volume.controllers.driver_calls import DriverCalls
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.resource_claims.claim import Claim, ClaimKey
from services.volume.core.resource_claims.claims_of_node import ClaimsOfNode
from services.volume.core.resource_claims.pod_claims import (
    AllocatedClaim,
    ClaimError,
    PodIdentity,
    RequestedClaim,
    allocated_claim,
)
from shared.process.crash import crash_point
from shared.text.plain_text import plain
from shared.time.clock import Clock

log = logging.getLogger(__name__)

CLAIM = "ResourceClaim"

Errors = dict[str, str]  # by the name of the claim within the pod
Done = TypeVar("Done")


class _Measure(Protocol):
    def __call__(self, operation: str, seconds: float, *, failed: bool) -> None: ...


class ClaimWork:
    """Performs the work of `claims`. `save` writes the record, and returns why it cannot be written, "" = it is; `look`
    compares the claims with the CDI specifications; `measure` receives each operation that has ended."""

    def __init__(
        self,
        claims: ClaimsOfNode,
        clock: Clock,
        content: ClusterContent,
        drivers: DriverCalls,
        save: Callable[[], Awaitable[str]],
        look: Callable[[], Awaitable[object]],
        measure: "_Measure",
    ) -> None:
        self._claims, self._clock, self._content, self._drivers, self._save = claims, clock, content, drivers, save
        self._look, self._measure = look, measure
        self._turns: WeakValueDictionary[tuple[ClaimKey, str], asyncio.Lock] = WeakValueDictionary()  # with the driver

    async def prepare(self, uid: str) -> None:
        """Prepare the claims of a pod. A failure is noted, after which it is tried again."""
        began = self._clock.monotonic()
        try:
            if self._claims.shares(uid):
                await self._look()  # a claim that was prepared long ago may have lost its specifications
            errors = await self._read(uid) or await self._call(uid)
        except Exception as error:
            log.exception("resource claims of pod %s: unexpected failure", uid)
            errors = {each.name: f"unexpected {type(error).__name__}" for each in self._claims.unread(uid)}
            for claim in self._claims.held(uid):
                errors |= dict.fromkeys(claim.names(uid), f"unexpected {type(error).__name__}")
        now = self._clock.monotonic()
        self._measure(PREPARE, now - began, failed=bool(errors))
        if errors:
            self._claims.pod_failed(uid, errors, now, self._clock.wall())
        else:
            self._claims.pod_succeeded(uid)

    async def unprepare(self, key: ClaimKey) -> None:
        """Unprepare a claim that no pod uses any more. A failure is noted, after which it is tried again."""
        began = self._clock.monotonic()
        try:
            claim = self._claims.unused(key)
            drivers = sorted(claim.parts) if claim is not None else []
            await self._drivers.until_known(drivers)
            errors = await self._perform_each(drivers, partial(self._unprepare_by, key))
            error = next((error for error in errors if error), "")
        except Exception as failure:
            log.exception("resource claim %s/%s: unexpected failure", *key)
            error = f"unexpected {type(failure).__name__}"
        now = self._clock.monotonic()
        self._measure(UNPREPARE, now - began, failed=bool(error))
        if error and self._claims.unprepare_failed(key, error, now, self._clock.wall()):
            log.warning("resource claim %s/%s of no pod is not unprepared: %s", *key, error)

    def _turn_of(self, key: ClaimKey, driver: str) -> asyncio.Lock:
        return self._turns.setdefault((key, driver), asyncio.Lock())

    @staticmethod
    async def _perform_each(drivers: Iterable[str], work: Callable[[str], Coroutine[Any, Any, Done]]) -> list[Done]:
        """Perform the work of the drivers at the same time, and return what each returns."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(driver)) for driver in drivers]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        return [task.result() for task in tasks]

    async def _read(self, uid: str) -> Errors:
        """Give the pod the claims that it has not got yet, if it may have all of them; return why it cannot."""
        pod, unread = self._claims.pod(uid), self._claims.unread(uid)
        if pod is None or not unread:
            return {}
        found = await asyncio.gather(*(self._read_claim(pod, requested) for requested in unread))
        errors = {
            requested.name: plain(str(error))
            for requested, error in zip(unread, found, strict=True)
            if isinstance(error, ClaimError)
        }
        for requested, claim in zip(unread, found, strict=True):
            if not errors and isinstance(claim, AllocatedClaim):
                try:
                    self._claims.use(uid, requested, claim)
                except ClaimError as error:
                    errors[requested.name] = plain(str(error))
        return errors

    async def _read_claim(self, pod: PodIdentity, requested: RequestedClaim) -> AllocatedClaim | ClaimError:
        try:
            if requested.error:
                raise ClaimError(requested.error)
            found = await self._content.read(ObjectKey(CLAIM, pod.namespace, requested.claim))
            if found.object is None:
                why = found.problem.text if found.problem is not None else "it is not there"
                where = f"ResourceClaim {requested.claim} referenced by pod {pod.name}"
                raise ClaimError(f"failed to fetch {where}: {why}")
            return allocated_claim(pod, requested, found.object)
        except ClaimError as error:
            return error

    async def _call(self, uid: str) -> Errors:
        """Have each driver prepare what it has not prepared of the pod's claims; return why it has not."""
        await self._drivers.until_known(self._claims.to_call(uid))
        errors: Errors = {}
        calls = self._claims.to_call(uid)
        missing = {driver: why for driver in sorted(calls) if (why := self._drivers.missing(driver))}
        for driver, why in missing.items():
            errors = _errors_of(uid, calls[driver], why) | errors
        drivers = sorted(calls.keys() - missing.keys())
        if not drivers and (unsaved := await self._save()):
            return _errors_of(uid, self._claims.held(uid), unsaved)
        for found in await self._perform_each(drivers, partial(self._prepare_by, uid)):
            errors = found | errors
        return errors

    async def _prepare_by(self, uid: str, driver: str) -> Errors:
        async with AsyncExitStack() as turns:
            for claim in self._claims.held(uid):
                if driver in claim.parts:
                    await turns.enter_async_context(self._turn_of(claim.key, driver))
            claims = self._claims.to_call(uid).get(driver, [])
            for claim in claims:
                self._claims.called(claim.key, driver)
            unsaved = await self._save()
            if unsaved or not claims:
                return _errors_of(uid, self._claims.held(uid) if unsaved else (), unsaved)
            crash_point("volume.claim.saved")
            outcome = await self._drivers.prepare(driver, claims)
            crash_point("volume.claim.answered")
            errors: Errors = {}
            for claim in claims:
                if claim.uid in outcome.devices:
                    self._claims.prepared(claim.key, driver, outcome.devices[claim.uid])
                else:
                    errors = _errors_of(uid, [claim], outcome.errors[claim.uid]) | errors
            await self._look()
            unsaved = await self._save()
            crash_point("volume.claim.prepared")
            return (_errors_of(uid, self._claims.held(uid), unsaved) if unsaved else {}) | errors

    async def _unprepare_by(self, key: ClaimKey, driver: str) -> str:
        """Have the driver unprepare the claim, unless a pod has got it; return why it has not, "" = it has."""
        async with self._turn_of(key, driver):
            claim = self._claims.begin_unprepare(key, driver)
            if claim is None:
                return ""
            await self._save()  # where that fails, the next process unprepares the claim once more
            error = await self._drivers.unprepare(driver, claim)
            if not error:
                self._claims.unprepared(key, driver)
            crash_point("volume.claim.unprepared")
            await self._save()
            return error


def _errors_of(uid: str, claims: Iterable[Claim], error: str) -> Errors:
    return {name: error for claim in claims for name in claim.names(uid)}
