"""Watches node, pods and lease at the API server and records every moment in which one of them looks bad.

Independent of the agent: it reports what any controller sees.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Self

from shared.kube import paths
from shared.kube.interface import ApiClient, ApiError
from shared.model.objects import Object, name
from tests.support.agents.agent import NODE
from tests.support.agents.conditions import condition_of, is_ready

LEASE_SECONDS = 40.0  # as long as a lease is valid; it is renewed every 10 s


class Witness:
    """Records while `async with Witness(cluster.plane.admin) as seen:` runs; `seen.assert_calm()` follows."""

    def __init__(self, admin: ApiClient) -> None:
        self._admin = admin
        self.complaints: list[str] = []
        self.longest_lease_age = 0.0  # seconds between two renewals seen
        self._renewed_at = time.monotonic()
        self._ready: dict[str, str] = {}  # pod -> UID, while it is Ready
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._renewed_at = time.monotonic()
        self._tasks = [
            asyncio.create_task(self._watch(paths.NODES, f"metadata.name={NODE}", self._on_node)),
            asyncio.create_task(self._watch(paths.pods("default"), "", self._on_pod)),
            asyncio.create_task(self._watch(paths.LEASES, f"metadata.name={NODE}", self._on_lease)),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._age_of_lease()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def assert_calm(self) -> None:
        """Check that the node was never NotReady, no pod lost its Ready, and the lease was always valid."""
        assert not self.complaints, "\n".join(self.complaints)
        assert self.longest_lease_age < LEASE_SECONDS, f"the lease was {self.longest_lease_age:.1f} s old"

    async def _watch(self, path: str, selector: str, take: Callable[[str, Object], None]) -> None:
        query = {"fieldSelector": selector} if selector else {}
        while True:
            with contextlib.suppress(ApiError):
                listed = await self._admin.get(path, query)
                for item in listed.get("items") or ():
                    take("ADDED", item)
                version = str(listed["metadata"]["resourceVersion"])
                async with self._admin.watch(path, {**query, "resourceVersion": version}, timeout=300) as stream:
                    async for event in stream:
                        take(event.type, event.object)
            await asyncio.sleep(0.05)

    def _on_node(self, kind: str, node: Object) -> None:
        ready = condition_of(node, "Ready")
        if kind != "DELETED" and ready and not is_ready(node):
            self.complaints.append(f"node {ready.get('status')}: {ready.get('reason')} {ready.get('message')}")

    def _on_pod(self, kind: str, pod: Object) -> None:
        key, uid = name(pod), str(pod["metadata"]["uid"])
        ending = kind == "DELETED" or "deletionTimestamp" in pod["metadata"]
        if ending:
            self._ready.pop(key, None)
        elif is_ready(pod):
            self._ready[key] = uid
        elif self._ready.get(key) == uid:
            ready = condition_of(pod, "Ready")
            self.complaints.append(f"pod {key} was Ready and is not: {ready.get('reason')} {ready.get('message')}")
            del self._ready[key]

    def _on_lease(self, kind: str, lease: Object) -> None:
        if kind != "DELETED":
            self._age_of_lease()
            self._renewed_at = time.monotonic()

    def _age_of_lease(self) -> None:
        self.longest_lease_age = max(self.longest_lease_age, time.monotonic() - self._renewed_at)
