"""Clients of the double with a way that loses packets, or that is slow: nothing is refused, nothing breaks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from shared.clock import Clock
from shared.kube.interface import ApiClient, ApiUnreachableError, WatchEvent
from shared.kube.rate_limit import TokenBucket
from shared.model.objects import Object


class LossyClient:
    """Between `drop` and `restore` nothing comes through. What was under way at a drop, requests and watches, never
    hears a word again, however long it waits: no connection ever says that it is dead."""

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
        if not self._dropping:
            lost = asyncio.create_task(self._lost.wait())
            asking = asyncio.create_task(self._client.get(path, query, timeout=timeout))
            try:
                await asyncio.wait({lost, asking}, return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    return asking.result()
            finally:
                lost.cancel()
                asking.cancel()
        await asyncio.sleep(deadline - loop.time())
        raise ApiUnreachableError(f"GET {path}: no answer in time")

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, timeout: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if self._dropping:
            await asyncio.Event().wait()
        async with self._client.watch(path, query, timeout=timeout) as stream:
            yield self._events(stream, self._lost)

    async def _events(self, stream: AsyncIterator[WatchEvent], lost: asyncio.Event) -> AsyncIterator[WatchEvent]:
        async for event in stream:
            if lost.is_set():
                break
            yield event
        await asyncio.Event().wait()


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
        self, path: str, query: Mapping[str, str], *, timeout: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        await self._take()
        async with self._client.watch(path, query, timeout=timeout) as stream:
            yield stream

    async def _take(self) -> None:
        if delay := self._bucket.take(self._clock.monotonic()):
            try:
                await asyncio.sleep(delay)
            except asyncio.CancelledError:
                self._bucket.give_back()
                raise
