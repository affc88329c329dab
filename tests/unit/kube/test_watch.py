"""Watches: long lines, endings, errors, breaks."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web

from shared.kube import watching
from shared.kube.client import KubeClient
from shared.kube.interface import ApiStatusError, ApiUnansweredError, ApiUnreachableError
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.kube.stand_in import StandIn, client_of, put_credentials, serving, status


def event(kind: str, name: str, **more: object) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}, **more}}).encode() + b"\n"


async def start(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


async def test_events_come_in_order_in_whatever_pieces_and_the_end_is_an_end(
    server: StandIn, client: KubeClient
) -> None:
    large = event("MODIFIED", "b", filler="x" * 3 * 2**20)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await start(request)
        both = event("ADDED", "a") + large + b"\n" + event("BOOKMARK", "c")
        for at in range(0, len(both), 100_001):
            await response.write(both[at : at + 100_001])
        await response.write(event("DELETED", "a")[:10])
        await response.write(event("DELETED", "a")[10:])
        return response

    server.handler = answer
    async with client.watch("/api/v1/pods", {"resourceVersion": "7"}, timeout=300) as events:
        found = [(one.type, one.object["metadata"]["name"]) async for one in events]
    assert found == [("ADDED", "a"), ("MODIFIED", "b"), ("BOOKMARK", "c"), ("DELETED", "a")]
    assert dict(server.requests[0].query) == {"resourceVersion": "7", "watch": "1", "timeoutSeconds": "300"}


async def test_an_event_is_there_before_the_next_one_is_sent(server: StandIn, client: KubeClient) -> None:
    seen = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await start(request)
        await response.write(event("ADDED", "a"))
        await seen.wait()
        await response.write(event("ADDED", "b"))
        return response

    server.handler = answer
    async with client.watch("/pods", {}, timeout=300) as events:
        async for _ in events:
            seen.set()


async def test_an_error_line_is_raised(server: StandIn, client: KubeClient) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await start(request)
        await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
        return response

    server.handler = answer
    with pytest.raises(ApiStatusError, match="too old resource version") as caught:
        async with client.watch("/pods", {}, timeout=300) as events:
            await anext(events)
    assert caught.value.gone


async def test_a_refused_watch_raises_as_it_opens(server: StandIn, client: KubeClient) -> None:
    server.always(lambda: status(403, "Forbidden", "no"))
    with pytest.raises(ApiStatusError, match="no"):
        async with client.watch("/pods", {}, timeout=300):
            raise AssertionError("opened")


@pytest.mark.parametrize("tail", [b"", b'{"type":"ADDED","obj'])
async def test_a_connection_cut_short_is_no_end(server: StandIn, client: KubeClient, tail: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await start(request)
        await response.write(event("ADDED", "a") + tail)
        assert request.transport is not None
        request.transport.abort()
        return response

    server.handler = answer
    with pytest.raises(ApiUnreachableError, match=r"127\.0\.0\.1:"):
        async with client.watch("/pods", {}, timeout=300) as events:
            async for _ in events:
                pass


async def test_a_watch_on_which_no_byte_comes_is_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watching.MAX_SILENT_SECONDS < 180
    monkeypatch.setattr(watching, "MAX_SILENT_SECONDS", 1.5)
    async with serving() as server, client_of(tmp_path) as client:
        put_credentials(tmp_path, 1, server.url)

        async def answer(request: web.Request) -> web.StreamResponse:
            response = await start(request)
            for byte in event("BOOKMARK", "a").rstrip():
                await response.write(bytes([byte]))
                await asyncio.sleep(0.03)  # together longer than that
            await response.write(b"\n")
            await asyncio.Event().wait()
            return response

        server.handler = answer
        async with client.watch("/pods", {}, timeout=300) as events:
            assert (await anext(events)).type == "BOOKMARK"
            with pytest.raises(ApiUnansweredError, match="the watch is silent: nothing came for") as caught:
                await anext(events)
        assert not caught.value.is_outage


async def test_a_watch_opens_within_its_time_or_not_at_all(server: StandIn, client: KubeClient) -> None:
    async def answer(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    server.handler = answer
    with pytest.raises(ApiUnansweredError):
        async with client.watch("/pods", {}, timeout=300, answer_timeout=0.1):
            raise AssertionError("opened")


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b'{"type": "ADDED"}\n', b'{"type": 3, "object": {}}\n'])
async def test_a_line_that_is_no_event_breaks_the_watch(server: StandIn, client: KubeClient, line: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await start(request)
        await response.write(line)
        return response

    server.handler = answer
    with pytest.raises(ApiUnreachableError, match="a line of the watch"):
        async with client.watch("/pods", {}, timeout=300) as events:
            await anext(events)


async def test_a_cancelled_watch_leaves_the_client_usable_and_no_connection(
    server: StandIn, client: KubeClient
) -> None:
    watching, ended = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/x":
            return web.json_response({"ok": True})
        response = await start(request)
        try:
            await response.write(event("ADDED", "a"))
            await asyncio.Event().wait()
        finally:
            ended.set()
        return response

    server.handler = answer

    async def follow() -> None:
        async with client.watch("/pods", {}, timeout=300) as events:
            async for _ in events:
                watching.set()

    task = asyncio.create_task(follow())
    await watching.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(ended.wait(), WAIT_SECONDS)
    assert await client.get("/x") == {"ok": True}
