"""Keeps one certificate of the store valid: requests the first one, and the next at 70 to 90 % of its lifetime.

It implements config.md 5.3 and 5.4, whose rules are in the core: times come from the clock, keys from the forms, API
credentials from `credentials`. No failure here ends the process.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from services.bootstrap.adapters import signing_api
from services.bootstrap.adapters.certificate_child import CertificateChild
from services.bootstrap.adapters.certificate_forms import CertificateForms, InspectedPair
from services.bootstrap.adapters.certificate_store import CertificateStore, StoredPair
from services.bootstrap.adapters.pending_request import PendingFile, PendingRequest
from services.bootstrap.adapters.resolved_credentials import ProblemError
from services.bootstrap.controllers.certificate_metrics import RotationMetrics
from services.bootstrap.controllers.csr_attempt import FAILURES, CsrAttempt, CsrFailures, RefusedError
from services.bootstrap.core.certificate_template import CertificateFacts, Template, covers
from services.bootstrap.core.rotation import REFUSED_PAUSE_SECONDS, deadline_of_new, is_due, rotation_deadline
from services.bootstrap.core.signing_request import generated_name
from services.frame.launch import Context
from shared.errors import OperatorError
from shared.kube.interface import ApiClient, ApiStatusError
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.process.crash import crash_point
from shared.time.timestamps import rfc3339

log = logging.getLogger(__name__)

_MAX_ISSUANCE_SECONDS = 900.0  # for which the answer to a request is awaited
_LOOK_SECONDS = 10.0  # as in Go, after which a clock that was set, or a machine that slept, is detected
_STORE_RETRY_SECONDS = 30.0  # no event reports that the store was repaired


class CsrCredentials(Protocol):
    """The API credentials of certificate signing requests."""

    async def open(self, facts: CertificateFacts | None) -> ApiClient:
        """Return the client for requests while `facts` are those of the certificate in force. Raises OperatorError."""
        ...

    async def refused(self) -> None:
        """Note that the API server answered 401."""
        ...

    async def served(self) -> None:
        """Note that a new certificate is in the store."""
        ...


class CertificateRotation:
    """Rotates the certificate of one store. `template` returns what is needed now, None = nothing; call `wake` when
    that may have changed."""

    def __init__(
        self,
        context: Context,
        name: str,
        store: CertificateStore,
        template: Callable[[], Template | None],
        credentials: CsrCredentials,
        *,
        on_change: Callable[[StoredPair, InspectedPair], None] = lambda *_: None,
        at_once: bool = False,
        forms: CertificateForms | None = None,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
        chance: random.Random | None = None,
    ) -> None:
        self._context, self._store, self._template, self._credentials = context, store, template, credentials
        self._on_change, self._at_once = on_change, at_once
        self._forms, self._in_thread = forms or CertificateChild(), in_thread
        self._random = chance or random.SystemRandom()
        self._metrics = RotationMetrics(context, name)
        self._attempts = CsrFailures(context, name, self._random.random)
        self._pending = PendingFile(Path(context.config.run_dir) / f"{name.replace(' ', '-')}.pending")
        self._woken = asyncio.Event()
        context.resumption.subscribe(lambda _: self.wake())
        self._held: InspectedPair | None = None
        self._mark: tuple[object, ...] | None = None  # of the pair in `_held`; None = not looked yet
        self._deadline = 0.0  # wall seconds
        self._tidied = False

    def wake(self) -> None:
        """Look at the store, the template and the wall clock now."""
        self._woken.set()

    async def run(self) -> None:
        """Rotate the certificate until cancelled."""
        while True:
            try:
                await self._look()
            except FAILURES as error:
                self._attempts.failed(error)
                await self._wait(_STORE_RETRY_SECONDS)
                continue
            template = self._template()
            if template is None or not (self._at_once or self._due(template)):
                self._attempts.good()
                await self._tidy()
                left = self._deadline - self._context.clock.wall() if self._held else _LOOK_SECONDS
                await self._wait(min(max(left, 0.0), _LOOK_SECONDS))
                continue
            await self._attempt(template)

    async def _tidy(self) -> None:
        """Remove what a kill left of an earlier request, because no certificate is requested."""
        if self._held is not None and (not self._tidied or self._pending.exists()):
            self._tidied = True
            await self._forget()
            await self._credentials.served()

    def _due(self, template: Template) -> bool:
        facts = self._held.facts if self._held else None
        return is_due(facts, template, self._deadline, self._context.clock.wall())

    async def _look(self) -> None:
        """Read the store, if it has changed."""
        if self._mark is None:
            await self._in_thread(self._store.recover)
        if self._store.mark() == self._mark:
            return
        pair = await self._in_thread(self._store.read)
        if pair is None:
            self._held, self._mark = None, ()
            self._metrics.holds(None)
            return
        try:
            held: InspectedPair = await self._in_thread(self._forms.inspect, pair.certificate, pair.key)
        except ProblemError as error:
            raise unusable(pair, error) from None
        self._held, self._mark = held, pair.mark
        self._metrics.holds(held.facts)
        self._deadline = rotation_deadline(held.facts, self._random.random())
        self._on_change(pair, held)

    async def _attempt(self, template: Template) -> None:
        """Ask once; whatever comes of it, return when it is time to look again."""
        attempt = asyncio.ensure_future(self._ask(template))
        while not attempt.done():
            woken = asyncio.ensure_future(self._woken.wait())
            try:
                await asyncio.wait({attempt, woken}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await _cancel(attempt)
                raise
            finally:
                woken.cancel()
            self._woken.clear()
            wanted = self._template()
            if not attempt.done() and wanted not in (None, template) and self._due(wanted):
                await _cancel(attempt)
                await self._forget()
                return
        try:
            attempt.result()
        except RefusedError as error:
            self._metrics.failed()
            await self._pause(error, template)
        except FAILURES as error:
            self._metrics.failed()
            if isinstance(error, ApiStatusError) and error.code == 401:
                await self._credentials.refused()
            await self._wait_for(self._attempts.failed(error), template)

    async def _pause(self, error: RefusedError, template: Template) -> None:
        """Wait after a refusal until the request is removed, another certificate is needed, or `REFUSED_PAUSE_SECONDS`
        are over. The request stays on disk, so that a restart does not send another one."""
        pause = asyncio.ensure_future(self._wait_for(self._attempts.failed(error), template))
        tasks = {pause}
        if error.request is not None:
            tasks.add(asyncio.ensure_future(self._until_gone(error.request)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                await _cancel(task)
        await self._forget()

    async def _forget(self) -> None:
        """Forget the pending request. If its file cannot be removed now, it is removed or overwritten later."""
        try:
            await self._in_thread(self._pending.remove)
        except OSError as error:
            await self._wait(self._attempts.failed(error))

    async def _until_gone(self, request: signing_api.SubmittedRequest) -> None:
        with contextlib.suppress(*FAILURES):
            api = await self._credentials.open(self._held.facts if self._held else None)
            await signing_api.gone(api, request, REFUSED_PAUSE_SECONDS)
            return
        await asyncio.sleep(REFUSED_PAUSE_SECONDS)

    async def _wait_for(self, seconds: float, template: Template) -> None:
        """Wait for these seconds, or until another certificate than that of `template` is wanted."""
        ends = self._context.clock.monotonic() + seconds
        while (left := ends - self._context.clock.monotonic()) > 0 and self._template() in (None, template):
            await self._wait(left)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def _ask(self, template: Template) -> None:
        api = await self._credentials.open(self._held.facts if self._held else None)
        pending = await self._in_thread(self._pending.read)
        if pending is None or pending.template != template or pending.until <= self._context.clock.wall():
            pending = await self._begin(api, template)
        latest = self._context.clock.wall() + _MAX_ISSUANCE_SECONDS  # a clock that was set back makes no wait longer
        pending = replace(pending, until=min(pending.until, latest))

        known = bool(pending.uid)

        async def accepted(changed: PendingRequest) -> None:
            nonlocal known
            known = True
            await self._in_thread(self._pending.write, changed)

        async def stranger(found: Object) -> str:
            if signing_api.holds(found, pending.request):
                return ""
            await self._in_thread(self._pending.remove)
            raise ProblemError(f"{pending.name} is the name of another client's request; another one will be made")

        attempt = CsrAttempt(self._context.clock.wall, accepted, stranger, self._attempts.waits)
        try:
            certificate = await attempt.certificate(api, pending)
        except ProblemError:
            await self._in_thread(self._pending.remove)
            raise
        except ApiStatusError as error:  # while it waits it still exists, also where this client may not read it
            if not known and error.code < 500:
                await self._in_thread(self._pending.remove)
            raise
        await self._take(pending, certificate, template)

    async def _begin(self, api: ApiClient, template: Template) -> PendingRequest:
        """Make a new key and request, and save them before they are sent."""
        encipherment = await signing_api.demands_encipherment(api)
        made = await self._in_thread(self._forms.make, template)
        pending = PendingRequest(
            name=generated_name([self._random.randrange(2**16) for _ in range(5)]),
            template=template,
            request=made.request,
            key=made.key,
            encipherment=encipherment,
            until=self._context.clock.wall() + _MAX_ISSUANCE_SECONDS,
        )
        await self._in_thread(self._pending.write, pending)
        crash_point("bootstrap.request.noted")
        return pending

    async def _take(self, pending: PendingRequest, certificate: str, template: Template) -> None:
        """Store what was issued, and look at it."""
        wall = self._context.clock.wall()
        found = await inspect_issued(self._forms, self._in_thread, pending, certificate, wall)
        if self._is_good(template, wall) and not covers(found.facts, template):
            line = f"{pending.name} was answered by a certificate without all that was asked for (look at the signer)"
            raise RefusedError(f"{line}; the present one stays", _as_sent(pending))
        replaced = self._held.facts if self._held else None
        await self._in_thread(store_pair, self._store, self._forms, found, wall)
        self._metrics.replaced(replaced)
        await self._in_thread(self._pending.remove)
        self._at_once = False
        log.info("a certificate for %s is in the store, valid until %s", pending.name, rfc3339(found.facts.not_after))
        await self._look()
        self._deadline = deadline_of_new(found.facts, self._deadline, wall)
        await self._credentials.served()
        if self._due(template):
            raise RefusedError(f"{pending.name} was answered by a certificate without all that was asked for, or of too"
                               " short a validity (look at the signer)")  # fmt: skip
        self._attempts.good()

    def _is_good(self, template: Template, wall: float) -> bool:
        """Return whether the present certificate contains what the template requires, and has not ended."""
        facts = self._held.facts if self._held else None
        return facts is not None and facts.not_after > wall and covers(facts, template)


def unusable(pair: StoredPair, error: ProblemError) -> OperatorError:
    """Return the error of a stored pair that cannot be used; a kubelet refuses to start with it, too (config.md
    5.3)."""
    remedy = "replace it, or remove it to have another certificate asked for"
    return OperatorError(str(error), where=str(pair.files.certificate), remedy=remedy)


async def inspect_issued(
    forms: CertificateForms,
    in_thread: Callable[..., Awaitable[Any]],
    pending: PendingRequest,
    certificate: str,
    wall: float,
) -> InspectedPair:
    """Return the pair of a signer's answer. Raises RefusedError for an answer that cannot be used."""
    request = _as_sent(pending)
    try:
        found: InspectedPair = await in_thread(forms.inspect, certificate, pending.key)
    except ProblemError as error:
        raise RefusedError(f"{pending.name} was answered by what cannot be used: {error}", request) from None
    if found.facts.not_after <= wall:
        what = f"{pending.name} was answered by a certificate that ended on {rfc3339(found.facts.not_after)}"
        raise RefusedError(f"{what} (check this machine's clock, or delete the request)", request)
    return found


def store_pair(store: CertificateStore, forms: CertificateForms, found: InspectedPair, wall: float) -> None:
    """Make it the current pair. Raises OSError, OperatorError."""

    def check(text: str) -> None:
        forms.inspect(text, text)

    store.put(found.chain, found.key, wall, check)


def _as_sent(pending: PendingRequest) -> signing_api.SubmittedRequest:
    return signing_api.SubmittedRequest(name=pending.name, uid=pending.uid, version=pending.version)


async def _cancel(task: "asyncio.Future[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, *FAILURES, RefusedError):
        await task
