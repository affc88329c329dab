"""Clients of the double with a way that loses packets, or that is slow: nothing is refused, nothing breaks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from shared.kube.interface import ApiClient, ApiUnansweredError, ApiUnreachableError, WatchEvent
from shared.kube.rate_limit import TokenBucket
from shared.model.objects import Object
from shared.time.clock import Clock

CONFIRMED = 9.5  # seconds
DIAL = 5.0  # seconds until a dial that is not answered is given up


class LossyClient:
    """Between `drop` and `restore` nothing comes through. What was under way at a drop, requests and watches, is lost:
    the kernel breaks its connection once nothing was confirmed for CONFIRMED, as `shared.kube.connection` has it."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._lost = asyncio.Event()  # of what is under way now
        self._dropping = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def drop(self) -> None:
        """Packets are dropped, of what is under way too."""
        self._dropping = True
        self._lost.set()
        self._lost = asyncio.Event()

    def restore(self) -> None:
        """What is asked from now on is answered; what was asked before is not."""
        self._dropping = False
        self._lost.set()
        self._lost = asyncio.Event()

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Object:
        assert timeout is not None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if self._dropping:
            await asyncio.sleep(min(timeout, DIAL))
            raise ApiUnreachableError(f"GET {path}: no connection")
        lost = asyncio.create_task(self._lost.wait())
        asking = asyncio.create_task(self._client.get(path, query, timeout=timeout))
        try:
            await asyncio.wait({lost, asking}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
        finally:
            lost.cancel()
            asking.cancel()
        if (left := deadline - loop.time()) < CONFIRMED:
            await asyncio.sleep(left)
            raise ApiUnansweredError(f"GET {path}: no answer in time")
        await asyncio.sleep(CONFIRMED)
        raise ApiUnreachableError(f"GET {path}: the connection broke: Connection timed out")

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, timeout: float, answer_timeout: float | None = None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if self._dropping:
            await asyncio.sleep(DIAL)
            raise ApiUnreachableError(f"WATCH {path}: no connection")
        async with self._client.watch(path, query, timeout=timeout, answer_timeout=answer_timeout) as stream:
            yield self._events(stream, self._lost)

    async def _events(self, stream: AsyncIterator[WatchEvent], lost: asyncio.Event) -> AsyncIterator[WatchEvent]:
        losing = asyncio.create_task(lost.wait())
        try:
            while not lost.is_set():
                coming = asyncio.ensure_future(anext(stream))
                await asyncio.wait({losing, coming}, return_when=asyncio.FIRST_COMPLETED)
                if lost.is_set():
                    coming.cancel()
                    break
                yield await coming
        except StopAsyncIteration:
            return
        finally:
            losing.cancel()
        await asyncio.sleep(CONFIRMED)
        raise ApiUnreachableError("watch: the connection broke: Connection timed out")


class LimitedClient:
    """As the client over HTTP: one rate limit for gets and watches, first come, first served."""

    def __init__(self, client: ApiClient, clock: Clock, *, qps: float, burst: int) -> None:
        self._client, self._clock = client, clock
        self._bucket = TokenBucket(qps, burst, clock.monotonic())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Object:
        await self._take()
        return await self._client.get(path, query, timeout=timeout)

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, timeout: float, answer_timeout: float | None = None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        await self._take()
        async with self._client.watch(path, query, timeout=timeout, answer_timeout=answer_timeout) as stream:
            yield stream

    async def _take(self) -> None:
        if delay := self._bucket.take(self._clock.monotonic()):
            try:
                await asyncio.sleep(delay)
            except asyncio.CancelledError:
                self._bucket.give_back()
                raise
