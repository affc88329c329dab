"""Asks the API server, through status, which user a token belongs to and what the user may do (server.md 2, 3.3).

Keeps answers as long as the configuration says, and keeps no failures. Tokens are kept as digests."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

import orjson

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.status import ReviewAccess, Reviewed, ReviewToken
from services.server.core.access import reviews
from services.server.core.access.authentication import User
from services.server.core.access.authorization import Attributes
from services.server.core.access.reviews import ExpiringCache, PendingReviews, ReviewError
from shared.config.effective import EffectiveConfig
from shared.model.objects import Object
from shared.time.clock import Clock

T = TypeVar("T")

TIMEOUT_SECONDS = 30.0  # that a client waits for one review

# Limits how many reviews run at once, and how many of them one address may cause. Further ones fail at once. status
# takes 100 of each.
MAX_TOKEN_REVIEWS, MAX_TOKEN_REVIEWS_OF_ADDRESS = 96, 16
MAX_ACCESS_REVIEWS, MAX_ACCESS_REVIEWS_OF_ADDRESS = 96, 48


class Reviews:
    """Makes token reviews and access reviews. Equal questions at the same time are asked once."""

    def __init__(self, bus: Bus, clock: Clock, config: EffectiveConfig) -> None:
        self._bus, self._clock, self._config = bus, clock, config
        self._users: ExpiringCache[bytes, tuple[User | None]] = ExpiringCache()
        self._verdicts: ExpiringCache[bytes, bool] = ExpiringCache()
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}
        self._tokens = PendingReviews(MAX_TOKEN_REVIEWS, MAX_TOKEN_REVIEWS_OF_ADDRESS)
        self._accesses = PendingReviews(MAX_ACCESS_REVIEWS, MAX_ACCESS_REVIEWS_OF_ADDRESS)

    async def user_of(self, token: str, address: str) -> User | None:
        """Return the user whose token the API server says it is, or None = no user's. `token` is ASCII; `address` is
        the client's. Raises ReviewError."""
        digest = hashlib.sha256(token.encode("ascii")).digest()
        held = self._users.get(digest, self._clock.monotonic())
        if held is not None:
            return held[0]

        async def ask() -> User | None:
            user = reviews.token_user(await self._ask(ReviewToken(token=token)))
            until = self._clock.monotonic() + self._config.webhook_authentication_cache_ttl
            self._users.put(digest, (user,), until)
            return user

        return await self._once(("token", digest), ask, self._tokens, address)

    async def allows(self, question: Attributes, address: str) -> bool:
        """Return whether the user may do it; `address` is the client's. Raises ReviewError."""
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

        return await self._once(("access", key), ask, self._accesses, address)

    def forget(self) -> None:
        """Forget all answers: their time did not pass while the machine was suspended."""
        self._users.clear()
        self._verdicts.clear()

    async def close(self) -> None:
        """Cancel the reviews that are under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, question: ReviewToken | ReviewAccess) -> Object:
        try:
            reviewed = await self._bus.ask("status", question, Reviewed, TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            raise ReviewError(str(error)) from error
        if reviewed.error:
            raise ReviewError(reviewed.error)
        return reviewed.status

    async def _once(self, key: Hashable, ask: Callable[[], Awaitable[T]], pending: PendingReviews, address: str) -> T:
        task = self._under_way.get(key)
        if task is None:
            pending.begin(address)

            async def perform() -> T:
                return await ask()

            def finished(done: asyncio.Task[T]) -> None:
                self._under_way.pop(key, None)
                pending.end(address)
                if not done.cancelled():
                    done.exception()  # marks the exception as seen: whoever waits for the task raises it

            task = self._under_way[key] = asyncio.create_task(perform(), name="review")
            task.add_done_callback(finished)
        # A client that leaves must not cancel the review for the others.
        return await asyncio.shield(task)
