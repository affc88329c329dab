"""Asks sources for objects and status for tokens, once for all that want the same at the same time. Decides nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Coroutine
from functools import partial
from typing import Any, TypeVar

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages import sources
from bus.messages.sources import GetObject
from bus.messages.status import IssuedToken, RequestToken
from services.volume.core.object_key import ObjectKey
from services.volume.core.payload import FoundObject, FoundToken, Gathered, Patience, Problem
from services.volume.core.token_cache import TRY_AGAIN, TokenCache, TokenError, TokenKey
from services.volume.core.volume_spec import VolumeSpec
from shared.clock import Clock

SECONDS = 10.0  # an ask under way is resent as soon as the other side is back
# Texts of a node authorizer, of a cache, and of a sources just started, that do not know the pod yet.
_LAG = (" is forbidden: ", "failed to sync ", " not registered")

T = TypeVar("T")
Key = TypeVar("Key", ObjectKey, TokenKey)

log = logging.getLogger(__name__)


class ClusterContent:
    """What volumes of files are made of. `jitter`: whole seconds, 0 to 9, drawn anew at each call."""

    def __init__(self, bus: Bus, clock: Clock, jitter: Callable[[], float]) -> None:
        self._bus, self._clock, self._jitter = bus, clock, jitter
        self._tokens = TokenCache()
        self._asking: dict[ObjectKey | TokenKey, asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def gather(self, spec: VolumeSpec) -> Gathered:
        """Return the objects and tokens that set-up needs, asked for at once; what cannot be had is a Problem."""
        objects, tokens = sorted(spec.objects, key=str), spec.tokens
        found, issued = await asyncio.gather(
            asyncio.gather(*(self._shared(key, self._object) for key in objects)),
            asyncio.gather(*(self._shared(key, self._token) for key in tokens)),
        )
        return Gathered(
            objects=dict(zip(objects, found, strict=True)),
            tokens={key: token for key, (token, _) in zip(tokens, issued, strict=True)},
            refresh_at=min((at for _, at in issued), default=None),
        )

    def changed(self, key: str) -> None:
        """An object has changed: what is being asked may come back old, so the next one to want it asks anew."""
        for asked in [asked for asked in self._asking if str(asked) == key]:
            del self._asking[asked]

    def forget(self, pod_uid: str) -> None:
        """The pod's volumes are torn down: so are its tokens."""
        self._tokens.forget(pod_uid)

    def keep(self, pod_uids: Container[str]) -> None:
        """Forget the tokens of all pods but these."""
        self._tokens.keep(pod_uids)

    async def close(self) -> None:
        """End what is being asked."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _shared(self, key: Key, ask: Callable[[Key], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """One ask for all that want the same; it goes on when one of them does not want it any more."""
        task: asyncio.Task[T] | None = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.get_running_loop().create_task(ask(key))
            self._tasks.add(task)
            task.add_done_callback(partial(self._answered, key))
        return asyncio.shield(task)

    def _answered(self, key: ObjectKey | TokenKey, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._asking.get(key) is task:
            del self._asking[key]

    async def _object(self, key: ObjectKey) -> FoundObject:
        request = GetObject(kind=key.kind, namespace=key.namespace, name=key.name)
        try:
            found = await self._bus.ask("sources", request, sources.FoundObject, SECONDS)
        except NoAnswerError as error:
            return FoundObject(problem=Problem(str(error), Patience.UNANSWERED))
        except RequestRefusedError as error:
            return FoundObject(problem=Problem(str(error)))
        problem = Problem(found.error, _patience(found.error)) if found.error else None
        return FoundObject(found.object, found.not_found, problem)

    async def _token(self, key: TokenKey) -> tuple[FoundToken, float]:
        """The token, and when (monotonic) to look at it again."""
        wall, now, jitter = self._clock.wall(), self._clock.monotonic(), self._jitter()
        cached = self._tokens.fresh(key, wall=wall, now=now, jitter=jitter)
        if cached is not None:
            return FoundToken(cached.token), cached.refresh_at(jitter)
        request = RequestToken(namespace=key.namespace, service_account=key.service_account, spec=key.request)
        error, patience = "", Patience.NONE
        try:
            issued = await self._bus.ask("status", request, IssuedToken, SECONDS)
            error = issued.error or ("" if issued.token else "the answer has no token")
            patience = _patience(error)
        except NoAnswerError as failure:
            error, patience = str(failure), Patience.UNANSWERED
        except RequestRefusedError as failure:
            error = str(failure)
        wall, now = self._clock.wall(), self._clock.monotonic()
        if not error:
            cached = self._tokens.issued(key, issued.token, issued.expiration, issued.lifetime, now=now)
            return FoundToken(cached.token), cached.refresh_at(jitter)
        try:
            cached = self._tokens.after_failure(key, error, wall=wall)
        except TokenError as failure:
            return FoundToken(problem=Problem(str(failure), patience)), now + TRY_AGAIN
        log.warning("couldn't update token %s, the old one is still good: %s", key, error)
        return FoundToken(cached.token), now + TRY_AGAIN


def _patience(error: str) -> Patience:
    return Patience.LAGGING if any(text in error for text in _LAG) else Patience.NONE
