"""What an environment refers to is read a few objects at a time, and no more is kept than it can use."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bus.messages.sources import REQUESTED_READ_TIMEOUT_SECONDS, FoundObject, GetObject
from services.podsync.adapters.cluster_reads import SourcesReads
from services.podsync.core.cri.environment import ReferencedObject
from shared.model.objects import Object
from tests.fakes.memory_bus import MemoryNetwork
from tests.support.waits.deadline import WAIT_SECONDS


class Sources:
    """Has every object, with `data`."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.data: dict[str, str] = {"a": "eA==", "b": "eQ==", "large": "x" * 1_000_000}
        self.asked: list[str] = []
        self.absent: set[str] = set()
        self.bus = network.bus("sources")
        self.bus.answer(GetObject, self._object)

    async def _object(self, request: GetObject) -> FoundObject:
        self.asked.append(request.name)
        if request.name in self.absent:
            return FoundObject(object=None, not_found=True, error=f'secret "{request.name}" not found')
        return FoundObject(object={"metadata": {"name": request.name}, "data": self.data})


@pytest.fixture
async def read() -> AsyncIterator[tuple[Sources, Any]]:
    """Sources, and how podsync reads through them."""
    network = MemoryNetwork()
    sources, bus = Sources(network), network.bus("podsync")
    for one in (sources.bus, bus):
        await one.start()
    reads = SourcesReads(bus, "n")
    yield sources, lambda container: reads.references({"metadata": {"namespace": "ns"}}, container)
    for one in (sources.bus, bus):
        await one.stop()


def key_of(secret: str, key: str) -> Object:
    return {"name": f"{secret}-{key}", "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


async def test_of_an_object_only_the_keys_that_are_named_are_kept(read: tuple[Sources, Any]) -> None:
    _, references = read
    async with references({"env": [key_of("s", "a"), key_of("s", "b"), key_of("s", "none")]}) as found:
        assert found["Secret", "s"].object == {"data": {"a": "eA==", "b": "eQ=="}}


async def test_an_object_that_is_taken_over_as_a_whole_is_kept_as_a_whole(read: tuple[Sources, Any]) -> None:
    sources, references = read
    async with references({"env": [key_of("s", "a")], "envFrom": [{"secretRef": {"name": "s"}}]}) as found:
        assert found["Secret", "s"].object == {"data": sources.data}


@pytest.mark.long
async def test_what_no_environment_has_room_for_is_not_read(read: tuple[Sources, Any]) -> None:
    sources, references = read
    async with references({"envFrom": [{"configMapRef": {"name": f"m{n}"}} for n in range(100)]}) as found:
        assert len(sources.asked) == 4 + 12  # the first are read again when its turn has come
        assert len(found) == 100
        assert found["ConfigMap", "m99"].error.startswith("not read: ")


@pytest.mark.long
async def test_only_a_few_containers_keep_a_large_environment_at_the_same_time(read: tuple[Sources, Any]) -> None:
    _, references = read
    inside, most_inside, leave = 0, 0, asyncio.Event()

    async def build() -> None:
        nonlocal inside, most_inside
        async with references({"envFrom": [{"configMapRef": {"name": f"m{n}"}} for n in range(4)]}) as found:
            assert {name for _, name in found} == {"m0", "m1", "m2", "m3"}
            assert not any(one.error for one in found.values())
            inside += 1
            most_inside = max(most_inside, inside)
            await leave.wait()
            inside -= 1

    building = [asyncio.create_task(build()) for _ in range(20)]
    async with asyncio.timeout(WAIT_SECONDS):
        while inside < 4:
            await asyncio.sleep(0)
        async with references({"env": [key_of("s", "a")]}) as small:  # does not wait for the others
            assert small["Secret", "s"].object == {"data": {"a": "eA=="}}
        assert inside == 4
        kept = [one.object["data"] for one in gc.get_objects() if type(one) is ReferencedObject and one.object]
        assert sum(len(text) for data in kept for text in data.values()) < 5 * 4 * 1_000_100
        leave.set()
        await asyncio.gather(*building)
    assert most_inside == 4


async def test_an_object_that_is_read_slowly_is_waited_for() -> None:
    network, answer = MemoryNetwork(), asyncio.Event()

    class Slow(Sources):
        async def _object(self, request: GetObject) -> FoundObject:
            await answer.wait()
            return await super()._object(request)

    sources, bus = Slow(network), network.bus("podsync")
    for one in (sources.bus, bus):
        await one.start()
    reading = asyncio.create_task(SourcesReads(bus, "n").secret("ns", "s"))
    await network.advance(65.0)
    answer.set()
    assert (await reading).object is not None
    for one in (sources.bus, bus):
        await one.stop()


async def test_an_api_server_that_answers_nothing_is_waited_for_once_and_not_for_every_few_objects() -> None:
    network = MemoryNetwork()

    class Hung(Sources):
        async def _object(self, request: GetObject) -> FoundObject:
            self.asked.append(request.name)
            await asyncio.Event().wait()
            raise AssertionError

    sources, bus = Hung(network), network.bus("podsync")
    for one in (sources.bus, bus):
        await one.start()

    async def read() -> list[str]:
        twelve = [key_of(f"s{n}", "a") for n in range(12)]
        async with SourcesReads(bus, "n").references({"metadata": {"namespace": "ns"}}, {"env": twelve}) as found:
            return [one.error for one in found.values()]

    reading = asyncio.create_task(read())
    await network.advance(REQUESTED_READ_TIMEOUT_SECONDS + 1.0)
    assert reading.done() and sources.asked == ["s0", "s1", "s2", "s3"]
    errors = await reading
    assert len(errors) == 12 and all(errors)
    assert "not read" not in errors[0], "the environment's error is that of its first object"
    for one in (sources.bus, bus):
        await one.stop()


async def test_an_object_that_does_not_exist_is_no_reason_to_leave_out_the_others(read: tuple[Sources, Any]) -> None:
    sources, references = read
    sources.absent = {"s0"}
    async with references({"env": [key_of(f"s{n}", "a") for n in range(6)]}) as found:
        assert [name for (_, name), one in found.items() if one.object] == ["s1", "s2", "s3", "s4", "s5"]
