"""What an environment refers to is read a few objects at a time, and no more is kept than it can use."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bus.memory import MemoryNetwork
from bus.messages.sources import FoundObject, GetObject
from services.podsync.adapters.cluster_reads import SourcesReads
from shared.model.objects import Object


class Sources:
    """Has every object, with `data`."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.data: dict[str, str] = {"a": "eA==", "b": "eQ==", "large": "x" * 1_000_000}
        self.asked: list[str] = []
        self.bus = network.bus("sources")
        self.bus.answer(GetObject, self._object)

    async def _object(self, request: GetObject) -> FoundObject:
        self.asked.append(request.name)
        return FoundObject(object={"metadata": {"name": request.name}, "data": self.data})


@pytest.fixture
async def read() -> AsyncIterator[tuple[Sources, Any]]:
    """Sources, and how podsync reads through them."""
    network = MemoryNetwork()
    sources, bus = Sources(network), network.bus("podsync")
    for one in (sources.bus, bus):
        await one.start()
    reads = SourcesReads(bus, "n")

    async def references(container: Object) -> Any:
        return await reads.references({"metadata": {"namespace": "ns"}}, container)

    yield sources, references
    for one in (sources.bus, bus):
        await one.stop()


def key_of(secret: str, key: str) -> Object:
    return {"name": f"{secret}-{key}", "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


async def test_of_an_object_only_the_keys_that_are_named_are_kept(read: tuple[Sources, Any]) -> None:
    _, references = read
    found = await references({"env": [key_of("s", "a"), key_of("s", "b"), key_of("s", "none")]})
    assert found["Secret", "s"].object == {"data": {"a": "eA==", "b": "eQ=="}}


async def test_an_object_that_is_taken_over_as_a_whole_is_kept_as_a_whole(read: tuple[Sources, Any]) -> None:
    sources, references = read
    found = await references({"env": [key_of("s", "a")], "envFrom": [{"secretRef": {"name": "s"}}]})
    assert found["Secret", "s"].object == {"data": sources.data}


async def test_what_no_environment_has_room_for_is_not_read(read: tuple[Sources, Any]) -> None:
    sources, references = read
    found = await references({"envFrom": [{"configMapRef": {"name": f"m{n}"}} for n in range(100)]})
    assert len(sources.asked) == 12
    assert len(found) == 100
    assert found["ConfigMap", "m99"].error.startswith("not read: ")
