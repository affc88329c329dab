"""One client on the API server's watches: feeds `Sight`, and wakes the tasks that wait for something."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Self

from shared.kube import paths
from shared.kube.interface import ApiClient, ApiError
from shared.model.objects import Object
from tests.chaos.sight import Sight
from tests.support.agents.agent import NODE

_AGAIN = 0.05  # seconds before a broken watch is opened again


class Watching:
    """`async with Watching(admin) as watching`: `watching.sight` is what has been seen."""

    def __init__(self, admin: ApiClient) -> None:
        self._admin = admin
        self.sight = Sight()
        self._news = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._follow_pods()),
            asyncio.create_task(self._follow(paths.NODES, self._on_node)),
            asyncio.create_task(self._follow(paths.LEASES, self._on_lease)),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, holds: Callable[[Sight], object], what: str, seconds: float) -> None:
        """Return as soon as `holds` of what was seen. AssertionError, naming `what`, when it does not in time."""
        try:
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(lambda: holds(self.sight))
        except TimeoutError:
            raise AssertionError(f"waited {seconds:.0f} s for {what}") from None

    async def _follow_pods(self) -> None:
        while True:
            with contextlib.suppress(ApiError):
                listed = await self._admin.get(paths.pods("default"))
                self.sight.listed(listed.get("items") or (), time.monotonic())
                await self._notify()
                await self._read(paths.pods("default"), {}, listed, self._on_pod)
            await asyncio.sleep(_AGAIN)

    async def _follow(self, path: str, take: Callable[[str, Object], None]) -> None:
        query = {"fieldSelector": f"metadata.name={NODE}"}
        while True:
            with contextlib.suppress(ApiError):
                listed = await self._admin.get(path, query)
                for item in listed.get("items") or ():
                    take("MODIFIED", item)
                await self._notify()
                await self._read(path, query, listed, take)
            await asyncio.sleep(_AGAIN)

    async def _read(
        self, path: str, query: dict[str, str], listed: Object, take: Callable[[str, Object], None]
    ) -> None:
        version = str(listed["metadata"]["resourceVersion"])
        async with self._admin.watch(path, {**query, "resourceVersion": version}, timeout=600) as stream:
            async for event in stream:
                take(event.type, event.object)
                await self._notify()

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _on_pod(self, kind: str, pod: Object) -> None:
        self.sight.pod(kind, pod, time.monotonic())

    def _on_node(self, kind: str, node: Object) -> None:
        if kind != "DELETED":
            self.sight.node(node)

    def _on_lease(self, kind: str, lease: Object) -> None:
        if kind != "DELETED":
            self.sight.lease(str(lease["spec"].get("renewTime")), time.monotonic())
