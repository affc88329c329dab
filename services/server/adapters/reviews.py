"""Asks status, and through it the API server, whose token that is and who may do what (server.md 2, 3.3).

Keeps answers as long as the configuration says; what could not be answered is never kept. Tokens are held as digests.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

import orjson

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.status import ReviewAccess, Reviewed, ReviewToken
from services.server.core import reviews
from services.server.core.authentication import User
from services.server.core.authorization import Attributes
from services.server.core.reviews import ExpiringCache, ReviewError
from shared.clock import Clock
from shared.config.effective import EffectiveConfig
from shared.model.objects import Object

T = TypeVar("T")

PATIENCE = 30.0  # seconds a client is kept waiting for one review


class Reviews:
    """Both kinds of review. Concurrent equal questions are asked once."""

    def __init__(self, bus: Bus, clock: Clock, config: EffectiveConfig) -> None:
        self._bus, self._clock, self._config = bus, clock, config
        self._users: ExpiringCache[bytes, tuple[User | None]] = ExpiringCache()
        self._verdicts: ExpiringCache[bytes, bool] = ExpiringCache()
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}

    async def user_of(self, token: str) -> User | None:
        """Whose token it is, None = the API server says that it is nobody's. Raises ReviewError."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        held = self._users.get(digest, self._clock.monotonic())
        if held is not None:
            return held[0]

        async def ask() -> User | None:
            user = reviews.token_user(await self._ask(ReviewToken(token=token)))
            until = self._clock.monotonic() + self._config.webhook_authentication_cache_ttl
            self._users.put(digest, (user,), until)
            return user

        return await self._once(("token", digest), ask)

    async def allows(self, question: Attributes) -> bool:
        """Whether the user may do it. Raises ReviewError."""
        spec = reviews.access_spec(question)
        key = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        held = self._verdicts.get(key, self._clock.monotonic())
        if held is not None:
            return held

        async def ask() -> bool:
            allowed = reviews.allowed(await self._ask(ReviewAccess(spec=spec)))
            if reviews.cacheable(question):
                config = self._config
                ttl = config.webhook_authorized_cache_ttl if allowed else config.webhook_unauthorized_cache_ttl
                self._verdicts.put(key, allowed, self._clock.monotonic() + ttl)
            return allowed

        return await self._once(("access", key), ask)

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, question: ReviewToken | ReviewAccess) -> Object:
        try:
            reviewed = await self._bus.ask("status", question, Reviewed, PATIENCE)
        except (NoAnswerError, RequestRefusedError) as error:
            raise ReviewError(str(error)) from error
        if reviewed.error:
            raise ReviewError(reviewed.error)
        return reviewed.status

    async def _once(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        task = self._under_way.get(key)
        if task is None:

            async def asked() -> T:
                return await ask()

            task = self._under_way[key] = asyncio.create_task(asked(), name="review")
            task.add_done_callback(lambda done: self._finished(key, done))
        # One client that leaves must not take the answer from the others.
        return await asyncio.shield(task)

    def _finished(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever still waits gets it; an error nobody waits for is no news
