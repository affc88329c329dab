"""A content store that a test fills: in the place of containerd's."""

import asyncio
import json

from shared.cri.interface import Blob, ContentStoreError, Ingest

GC_LAYER = "containerd.io/gc.ref.content.l."


class FakeContent:
    """`failure`: the code of every answer, `hangs`: no answer at all, `held`: what the answers to a request wait for.
    `requests` has the names of all requests."""

    def __init__(self) -> None:
        self.fetched: dict[str, int] = {}  # digest -> bytes that are there
        self.complete: set[str] = set()
        self.manifests: dict[tuple[str, str], list[Blob]] = {}  # (host, repository) -> blobs
        self.contents: dict[str, bytes] = {}
        self.failure, self.hangs = "", False
        self.held: dict[str, asyncio.Event] = {}
        self.requests: list[str] = []
        self.closed = 0

    def add_manifest(self, host: str, repository: str, digest: str, layers: dict[str, int], created_at: float) -> None:
        """A manifest with these layers (digest -> size)."""
        labels = {f"{GC_LAYER}{number}": layer for number, layer in enumerate(layers)}
        content = json.dumps({"layers": [{"digest": layer, "size": size} for layer, size in layers.items()]}).encode()
        blob = Blob(digest=digest, size=len(content), created_at=created_at, labels=labels)
        self.manifests.setdefault((host, repository), []).append(blob)
        self.contents[digest] = content

    async def ingests(self) -> tuple[Ingest, ...]:
        await self._request("ingests")
        return tuple(Ingest(digest=digest, offset=offset) for digest, offset in self.fetched.items())

    async def blobs(self, host: str, repository: str) -> tuple[Blob, ...]:
        await self._request("blobs")
        return tuple(self.manifests.get((host, repository), ()))

    async def has(self, digest: str) -> bool:
        await self._request("has")
        return digest in self.complete

    async def read(self, digest: str, limit: int) -> bytes:
        await self._request("read")
        return self.contents[digest][:limit]

    async def close(self) -> None:
        self.closed += 1

    async def _request(self, name: str) -> None:
        self.requests.append(name)
        if self.hangs:
            await asyncio.Event().wait()
        if name in self.held:
            await self.held[name].wait()
        if self.failure:
            raise ContentStoreError(self.failure, name)
