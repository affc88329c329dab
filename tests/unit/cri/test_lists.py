"""Lists of a runtime as streams: what is in them, who is asked how often, and what a runtime without them costs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2

from shared.cri import channel
from shared.cri.channel import MAX_MESSAGE_BYTES, CriChannel
from shared.cri.client import CriRuntime
from shared.cri.interface import RuntimeCallError
from shared.cri.lists import Lists
from shared.metrics.registry import Registry
from tests.fakes.cri_lists import IMAGE, STREAMS, ListServer
from tests.support.waits.deadline import WAIT_SECONDS

ALL = tuple(STREAMS)
ENTRIES: dict[str, Callable[[int], Any]] = {
    "ListContainers": lambda n: api_pb2.Container(id=f"c{n}", annotations={"a": "b" * n}),
    "ListPodSandbox": lambda n: api_pb2.PodSandbox(id=f"s{n}", labels={"l": str(n)}),
    "ListContainerStats": lambda n: api_pb2.ContainerStats(
        attributes=api_pb2.ContainerAttributes(id=f"c{n}"),
        writable_layer=api_pb2.FilesystemUsage(used_bytes=api_pb2.UInt64Value(value=n)),
    ),
    "ListPodSandboxStats": lambda n: api_pb2.PodSandboxStats(attributes=api_pb2.PodSandboxAttributes(id=f"s{n}")),
    "ListPodSandboxMetrics": lambda n: api_pb2.PodSandboxMetrics(pod_sandbox_id=f"s{n}"),
    "ListImages": lambda n: api_pb2.Image(id=f"sha256:{n}", size=n, repo_tags=[f"t:{n}"]),
}


def image(n: int) -> Any:
    return api_pb2.Image(id=f"sha256:{n}", size=n)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ListServer]:
    async with ListServer(tmp_path / "cri.sock", *ALL) as server:
        yield server


@pytest.fixture
async def client(served: ListServer) -> AsyncIterator[CriRuntime]:
    runtime = CriRuntime(served.endpoint, request_timeout=WAIT_SECONDS, streams_lists=True)
    yield runtime
    await runtime.close()


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 2, 100])
async def test_each_list_is_the_same_as_a_stream(served: ListServer, batch: int) -> None:
    """Whether a part has one entry or many."""
    served.batch = batch
    served.entries = {method: [make(n) for n in range(5)] for method, make in ENTRIES.items()}
    connection = CriChannel(served.endpoint)
    streamed, plain = (Lists(connection, WAIT_SECONDS, streamed=streamed) for streamed in (True, False))
    for service, method, _, _ in STREAMS.values():
        stub = connection.image if service == IMAGE else connection.runtime
        request = getattr(api_pb2, f"{method}Request")()
        answer = await streamed.whole(stub, method, request)
        assert served.asked[method] == 0
        assert answer == await plain.whole(stub, method, request)
        assert len(answer.ListFields()[0][1]) == 5
    await connection.close()


@pytest.mark.long
async def test_a_list_that_no_message_holds_arrives_as_a_stream(served: ListServer, client: CriRuntime) -> None:
    served.entries["ListImages"] = [
        api_pb2.Image(id=f"sha256:{n}", size=n, repo_tags=["t" * (MAX_MESSAGE_BYTES // 3)]) for n in range(5)
    ]
    assert [image.size for image in await client.list_images()] == list(range(5))
    plain = CriRuntime(served.endpoint, request_timeout=WAIT_SECONDS)
    with pytest.raises(RuntimeCallError) as error:
        await plain.list_images()
    assert error.value.code == "ResourceExhausted"
    assert served.asked == {"StreamImages": 1, "ListImages": 1}, "without the gate no stream is asked for"
    await plain.close()


async def test_a_runtime_without_streams_is_asked_once_for_each_and_once_again_when_it_is_back(
    served: ListServer, client: CriRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    served.streams = {"StreamContainerStats"}
    served.entries["ListImages"] = [image(1)]
    for _ in range(3):
        assert len(await client.list_images()) == 1
        assert await client.writable_layers() == {}
        assert await client.observe() == {}
    assert served.asked == {
        "StreamImages": 1,
        "ListImages": 3,
        "StreamContainerStats": 3,
        "StreamContainers": 1,
        "ListContainers": 3,
        "StreamPodSandboxes": 1,
        "ListPodSandbox": 3,
    }
    assert [record.levelname for record in caplog.records if "stream" in record.message] == ["INFO"]
    await served.stop()
    served.streams = set(ALL)
    await served.start()
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while served.asked["StreamImages"] == 1:
        assert asyncio.get_running_loop().time() < deadline
        try:
            await client.list_images()
        except RuntimeCallError as error:
            assert error.code == "Unavailable"
        await asyncio.sleep(0.01)
    before = served.asked["ListImages"]
    assert len(await client.list_images()) == 1
    assert served.asked["ListImages"] == before


async def test_of_a_stream_that_breaks_off_nothing_counts(served: ListServer, client: CriRuntime) -> None:
    served.entries["ListImages"] = [image(n) for n in range(3)]
    served.fails_after = 2
    with pytest.raises(RuntimeCallError, match="the store is closed") as error:
        await client.list_images()
    assert (error.value.method, error.value.code) == ("ListImages", "Unavailable")
    served.fails_after = None
    assert len(await client.list_images()) == 3
    assert served.asked == {"StreamImages": 2}


async def test_a_stream_that_hangs_has_the_deadline_of_a_request(served: ListServer) -> None:
    served.hangs = True
    runtime = CriRuntime(served.endpoint, request_timeout=0.2, streams_lists=True)
    with pytest.raises(RuntimeCallError) as error:
        await runtime.list_images()
    assert (error.value.code, served.asked) == ("DeadlineExceeded", {"StreamImages": 1})
    await runtime.close()


@pytest.mark.parametrize("limit", ["MAX_LIST_BYTES", "MAX_LIST_MESSAGES"])
async def test_a_stream_without_end_is_refused(
    served: ListServer, client: CriRuntime, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.entries["ListImages"] = [image(n) for n in range(1, 4)]
    monkeypatch.setattr(channel, limit, 2 if limit == "MAX_LIST_MESSAGES" else 2 * image(1).ByteSize())
    with pytest.raises(RuntimeCallError, match="the list has more than") as error:
        await client.list_images()
    assert error.value.code == "ResourceExhausted"


async def test_a_runtime_that_lacks_streams_counts_as_no_error(served: ListServer) -> None:
    served.streams, metrics = set(), Registry()
    runtime = CriRuntime(served.endpoint, request_timeout=WAIT_SECONDS, streams_lists=True, metrics=metrics)
    await runtime.list_images()
    await runtime.close()
    counted = {family.name: series for family, series in metrics.collect()}
    assert set(counted["kubelet_runtime_operations_total"]) == {("list_images",)}
    assert not counted.get("kubelet_runtime_operations_errors_total")


async def test_the_list_of_one_pod_is_one_answer(served: ListServer, client: CriRuntime) -> None:
    assert await client.observe("uid") == {}
    assert served.asked == {"ListContainers": 1, "ListPodSandbox": 1}
