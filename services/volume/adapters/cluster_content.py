"""Requests objects from sources and tokens from status; equal requests at the same time are one. Decides nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Coroutine
from functools import partial
from typing import Any, TypeVar

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages import sources
from bus.messages.sources import REQUESTED_READ_TIMEOUT_SECONDS, GetObject
from bus.messages.status import REQUESTED_WRITE_TIMEOUT_SECONDS, IssuedToken, RequestToken
from services.volume.adapters.pod_certificates import PodCertificates
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import (
    FailureKind,
    FoundCertificate,
    FoundObject,
    FoundToken,
    Problem,
    SetUpInputs,
)
from services.volume.core.files.pod_certificates import CertificateKey
from services.volume.core.files.token_cache import RETRY_SECONDS, TokenCache, TokenError, TokenKey
from services.volume.core.specs.volume_spec import VolumeSpec
from shared.time.clock import Clock

# Parts of the errors of components that do not have the pod yet: the node authorizer, a cache, and a sources that has
# just started.
_LAG = (" is forbidden: ", "failed to sync ", "informer has not yet synced", " not registered")

T = TypeVar("T")
Key = TypeVar("Key", ObjectKey, TokenKey)

log = logging.getLogger(__name__)


class ClusterContent:
    """Gathers the objects, tokens and certificates that volumes need.

    `jitter` returns a whole number of seconds from 0 to 9, a new one at each call.
    """

    def __init__(
        self, bus: Bus, clock: Clock, jitter: Callable[[], float], certificates: PodCertificates | None = None
    ) -> None:
        self._bus, self._clock, self._jitter = bus, clock, jitter
        self._tokens = TokenCache()
        self._certificates = certificates
        self._requests: dict[ObjectKey | TokenKey, asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def gather(self, spec: VolumeSpec) -> SetUpInputs:
        """Request all objects and tokens that set-up needs at the same time, and return them. One that cannot be had is
        returned as a Problem."""
        objects, tokens = sorted(spec.objects, key=str), spec.tokens
        found, issued = await asyncio.gather(
            asyncio.gather(*(self._shared(key, self._object) for key in objects)),
            asyncio.gather(*(self._shared(key, self._token) for key in tokens)),
        )
        certificates = dict[CertificateKey, tuple[FoundCertificate, float]]()
        if self._certificates is not None:
            certificates = {key: await self._certificates.get(key) for key in spec.certificates}
        return SetUpInputs(
            objects=dict(zip(objects, found, strict=True)),
            tokens={key: token for key, (token, _) in zip(tokens, issued, strict=True)},
            certificates={key: certificate for key, (certificate, _) in certificates.items()},
            refresh_at=min((at for _, at in [*issued, *certificates.values()]), default=None),
        )

    async def read(self, key: ObjectKey, *, fresh: bool = False) -> FoundObject:
        """Return one object, or a Problem. `fresh`: as the API server has it now."""
        return await self._object(key, fresh=fresh)

    def changed(self, key: str) -> None:
        """Let the next volume that needs the object with this key in `objects.changed` send a new request: a running
        one may return the old version."""
        for running in [running for running in self._requests if str(running) == key]:
            del self._requests[running]

    def waiting(self, key: str) -> list[tuple[str, str]]:
        """Return pod UID and name of each volume that waits for the certificate request with this key."""
        return self._certificates.waiting(key) if self._certificates is not None else []

    def forget(self, pod_uid: str) -> None:
        """Forget tokens and certificates of a pod whose volumes are torn down."""
        self._tokens.forget(pod_uid)
        if self._certificates is not None:
            self._certificates.forget(pod_uid)

    def keep(self, pod_uids: Container[str]) -> None:
        """Forget tokens and certificates of all pods but these."""
        self._tokens.keep(pod_uids)
        if self._certificates is not None:
            self._certificates.keep(pod_uids)

    async def close(self) -> None:
        """Cancel the running requests."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _shared(self, key: Key, ask: Callable[[Key], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """Return the answer of one request for all volumes that need the same. It continues when one of them no longer
        needs it."""
        task: asyncio.Task[T] | None = self._requests.get(key)
        if task is None:
            task = self._requests[key] = asyncio.get_running_loop().create_task(ask(key))
            self._tasks.add(task)
            task.add_done_callback(partial(self._answered, key))
        return asyncio.shield(task)

    def _answered(self, key: ObjectKey | TokenKey, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._requests.get(key) is task:
            del self._requests[key]

    async def _object(self, key: ObjectKey, *, fresh: bool = False) -> FoundObject:
        request = GetObject(kind=key.kind, namespace=key.namespace, name=key.name, fresh=fresh)
        try:
            found = await self._bus.ask("sources", request, sources.FoundObject, REQUESTED_READ_TIMEOUT_SECONDS)
        except NoAnswerError as error:
            return FoundObject(problem=Problem(str(error), FailureKind.UNANSWERED))
        except RequestRefusedError as error:
            return FoundObject(problem=Problem(str(error)))
        problem = Problem(found.error, _kind(found.error)) if found.error else None
        return FoundObject(found.object, found.not_found, problem)

    async def _token(self, key: TokenKey) -> tuple[FoundToken, float]:
        """Return the token, and the monotonic time at which to check it again."""
        wall, now, jitter = self._clock.wall(), self._clock.monotonic(), self._jitter()
        cached = self._tokens.fresh(key, wall=wall, now=now, jitter=jitter)
        if cached is not None:
            return FoundToken(cached.token, expiration=cached.expiration), cached.refresh_at(jitter)
        request = RequestToken(namespace=key.namespace, service_account=key.service_account, spec=key.request)
        error, kind = "", FailureKind.LASTING
        try:
            issued = await self._bus.ask("status", request, IssuedToken, REQUESTED_WRITE_TIMEOUT_SECONDS)
            error = issued.error or ("" if issued.token else "the answer has no token")
            # The API server's admission reads pods from a cache, which may not have a new pod yet.
            kind = FailureKind.LAGGING if error == f'pod "{key.pod}" not found' else _kind(error)
        except NoAnswerError as failure:
            error, kind = str(failure), FailureKind.UNANSWERED
        except RequestRefusedError as failure:
            error = str(failure)
        wall, now = self._clock.wall(), self._clock.monotonic()
        if not error:
            cached = self._tokens.issued(key, issued.token, issued.expiration, issued.lifetime, now=now)
            return FoundToken(cached.token, expiration=cached.expiration), cached.refresh_at(jitter)
        try:
            cached = self._tokens.after_failure(key, error, wall=wall)
        except TokenError as failure:
            return FoundToken(problem=Problem(str(failure), kind)), now + RETRY_SECONDS
        log.warning("couldn't update token %s, the old one is still valid: %s", key, error)
        return FoundToken(cached.token, expiration=cached.expiration), now + RETRY_SECONDS


def _kind(error: str) -> FailureKind:
    return FailureKind.LAGGING if any(text in error for text in _LAG) else FailureKind.LASTING
