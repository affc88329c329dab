"""A watch of a client as a task, for tests of HTTP/2 connections."""

import asyncio

from shared.kube.client import KubeClient
from shared.kube.interface import WatchEvent


class Watch:
    """One watch of a client and what it brought."""

    def __init__(self, client: KubeClient, name: str = "a", opened_within: float = 20) -> None:
        self.found: list[WatchEvent] = []
        self.opened, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.task = asyncio.create_task(self._run(client, name, opened_within))

    async def _run(self, client: KubeClient, name: str, opened_within: float) -> None:
        query = {"fieldSelector": f"metadata.name={name}"}
        async with client.watch("/api/v1/secrets", query, timeout=300, answer_timeout=opened_within) as events:
            self.opened.set()
            await self.go_on.wait()
            async for one in events:
                self.found.append(one)
                await self.go_on.wait()

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
