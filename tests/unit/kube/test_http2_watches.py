"""Watches of one process over one HTTP/2 connection: shared, apart from each other, and moved when it ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from h2.errors import ErrorCodes

from shared.kube import http2_connection
from shared.kube.http2_session import STREAM_WINDOW_BYTES
from shared.kube.interface import ApiStatusError, ApiUnansweredError, ApiUnreachableError
from tests.unit.kube.http2_stand_in import CA, Asked, Http2StandIn, serving_http2, until
from tests.unit.kube.http2_watch import Watch
from tests.unit.kube.stand_in import client_of, put_credentials, serving
from tests.unit.kube.test_tls import server_context


def event(name: str, **more: object) -> bytes:
    return json.dumps({"type": "MODIFIED", "object": {"metadata": {"name": name}, **more}}).encode() + b"\n"


@asynccontextmanager
async def watching(directory: Path, count: int, **options: object) -> AsyncIterator[tuple[Http2StandIn, list[Watch]]]:
    """A server and so many open watches of one client."""
    async with serving_http2(directory) as server, client_of(directory) as client:
        for name, value in options.items():
            setattr(server, name, value)
        put_credentials(directory, 1, server.url, ca_file=CA.pem, token_file=b"secret")
        watches = [Watch(client, f"w{number}") for number in range(count)]
        try:
            await until(lambda: all(watch.opened.is_set() for watch in watches))
            yield server, watches
        finally:
            for watch in watches:
                await watch.cancel()


async def test_all_watches_of_a_process_share_a_connection_that_is_dialled_once(tmp_path: Path) -> None:
    async with serving_http2(tmp_path) as server, client_of(tmp_path) as client:
        put_credentials(tmp_path, 1, server.url, ca_file=CA.pem, token_file=b"secret")
        other = client.behind(shares_connections=True)
        shared = [client.shares_watches]
        watches = [Watch(client if number % 2 else other, f"w{number}") for number in range(60)]
        await asyncio.gather(*(watch.opened.wait() for watch in watches))
        assert [*shared, client.shares_watches, other.shares_watches] == [True, True, True]
        assert await client.get("/x") == {}
        assert (len(server.connections), len(server.http1)) == (1, 1)
        assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer secret"}
        asked = server.asked[0].headers
        assert asked[":path"].startswith("/api/v1/secrets?fieldSelector=metadata.name%3Dw")
        assert asked[":authority"] == server.url.removeprefix("https://")
        assert asked["user-agent"].startswith("kubelet/") and asked["accept"] == "application/json"
        for number, one in enumerate(server.asked):
            one.send(event(str(number)))
        await until(lambda: all(len(watch.found) == 1 for watch in watches))
        await client.close()
        for watch in watches:
            with pytest.raises(ApiUnreachableError):
                await watch.task
        await until(server.connections[0].closed.is_set)


@pytest.mark.long
async def test_events_come_in_whatever_pieces_and_the_end_is_an_end(tmp_path: Path) -> None:
    async with watching(tmp_path, 1) as (server, [watch]):
        asked = server.asked[0]
        asked.send(event("a") + event("large", filler="x" * 3 * 2**20))
        asked.send(b"\n" + event("b")[:10])
        await until(lambda: len(watch.found) == 2)
        asked.send(event("b")[10:])
        await until(lambda: not asked.unsent)
        asked.end()
        await watch.task
        assert [one.object["metadata"]["name"] for one in watch.found] == ["a", "large", "b"]


@pytest.mark.long
async def test_a_stream_that_is_not_read_is_bounded_and_holds_back_no_other(tmp_path: Path) -> None:
    async with watching(tmp_path, 3) as (server, [slow, slower, quick]):
        slow.go_on.clear()
        slower.go_on.clear()
        for asked, name in zip(server.asked, "abc", strict=True):
            asked.send(event(name) + event(name, filler="x" * 200_000) * 20)
        await until(lambda: len(quick.found) == 21)
        for asked, watch in zip(server.asked, (slow, slower), strict=False):
            taken = 200_000 * 20 - len(asked.unsent)
            assert taken < 2 * STREAM_WINDOW_BYTES and len(watch.found) <= 1
        slow.go_on.set()
        await until(lambda: len(slow.found) == 21)
        await slower.cancel()
        await until(lambda: server.connections[0].resets == [server.asked[1].stream])
        assert len(server.connections) == 1


async def test_a_refused_watch_and_its_reason(tmp_path: Path) -> None:
    def refuse(asked: Asked) -> None:
        asked.head(429 if "w0" in asked.headers[":path"] else 403, retry_after="30")
        asked.send(b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not yours"}')
        asked.end()

    async with serving_http2(tmp_path) as server, client_of(tmp_path) as client:
        server.handler = refuse
        put_credentials(tmp_path, 1, server.url, ca_file=CA.pem)
        with pytest.raises(ApiStatusError, match="not yours") as caught:
            await Watch(client, "other").task
        assert caught.value.forbidden
        with pytest.raises(ApiStatusError) as caught:
            await Watch(client, "w0").task
        assert caught.value.retry_after == 30


@pytest.mark.long
async def test_a_full_connection_gets_a_second_one_beside_it(tmp_path: Path) -> None:
    async with watching(tmp_path, 25, streams=10) as (server, watches):
        assert sorted(len(connection.asked) for connection in server.connections) == [5, 10, 10]
        await watches[0].cancel()
        await until(lambda: any(connection.resets for connection in server.connections))
    async with watching(tmp_path, 1, streams=10) as (server, _):
        assert len(server.connections) == 1


async def test_a_server_that_drains_keeps_its_streams_and_gets_no_new_ones(tmp_path: Path) -> None:
    refused: list[Asked] = []

    def answer(asked: Asked) -> None:
        """The third request comes too late: the server goes away before it."""
        if len(server.asked) < 3 or refused:
            asked.head()
            return
        refused.append(asked)
        asked.connection.go_away(server.asked[1].stream)

    async with serving_http2(tmp_path) as server, client_of(tmp_path) as client:
        server.handler = answer
        put_credentials(tmp_path, 1, server.url, ca_file=CA.pem)
        old = [Watch(client, name) for name in "ab"]
        await asyncio.gather(*(watch.opened.wait() for watch in old))
        new = Watch(client, "c")
        await new.opened.wait()
        first, second = server.connections
        assert [asked.connection for asked in server.asked] == [first, first, first, second]
        server.asked[0].send(event("a"))
        await until(lambda: len(old[0].found) == 1)
        for asked in server.asked[:2]:
            asked.end()
        await asyncio.gather(*(watch.task for watch in old))
        await until(first.closed.is_set)
        assert not second.closed.is_set()
        await new.cancel()


async def test_a_reset_ends_one_watch_and_a_refused_stream_is_opened_again(tmp_path: Path) -> None:
    async with watching(tmp_path, 2) as (server, [broken, other]):
        refusals = [True]
        server.asked[0].reset(ErrorCodes.INTERNAL_ERROR)
        with pytest.raises(ApiUnreachableError, match="reset the stream: INTERNAL_ERROR") as caught:
            await broken.task
        assert caught.value.is_outage and not other.task.done()

        def refuse_once(asked: Asked) -> None:
            if refusals:
                refusals.pop()
                asked.reset(ErrorCodes.REFUSED_STREAM)
            else:
                asked.head()

        server.handler = refuse_once
        async with client_of(tmp_path) as client:
            watch = Watch(client)
            await watch.opened.wait()
            assert len(server.asked) == 4
            await watch.cancel()
            for code in (ErrorCodes.REFUSED_STREAM, ErrorCodes.ENHANCE_YOUR_CALM):
                server.handler = partial(Asked.reset, code=code)
                with pytest.raises(ApiUnansweredError, match="reset the stream") as busy:
                    await Watch(client).task
                assert not busy.value.is_outage, "the server has too much to do, and the network works"


@pytest.mark.long
async def test_a_cut_connection_breaks_its_watches_and_what_is_not_answered_is_sent_again(tmp_path: Path) -> None:
    async with watching(tmp_path, 2) as (server, watches), client_of(tmp_path) as client:
        server.asked[0].send(event("a"))
        await until(lambda: len(watches[0].found) == 1)
        server.connections[0].transport.abort()
        for watch in watches:
            with pytest.raises(ApiUnreachableError, match=r"127\.0\.0\.1:\d+: the connection ") as caught:
                await watch.task
            assert caught.value.is_outage

        def cut_first(asked: Asked) -> None:
            if len(server.connections) == 2:
                asked.connection.transport.abort()
            else:
                asked.head()

        server.handler = cut_first
        watch = Watch(client)
        await watch.opened.wait()
        assert len(server.connections) == 3
        server.handler = lambda asked: asked.connection.transport.abort()
        with pytest.raises(ApiUnreachableError, match=r"before an answer came|connection broke"):
            await Watch(client, "never").task
        assert len(server.connections) <= 6
        await watch.cancel()


async def test_a_silent_connection_is_pinged_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (http2_connection.PING_AFTER_SECONDS, http2_connection.MAX_PONG_SECONDS) == (30, 15)
    monkeypatch.setattr(http2_connection, "PING_AFTER_SECONDS", 0.1)
    monkeypatch.setattr(http2_connection, "MAX_PONG_SECONDS", 1.0)
    async with watching(tmp_path, 2) as (server, watches):
        [connection] = server.connections
        quiet_for = asyncio.get_running_loop().time() + 1.5
        await until(lambda: asyncio.get_running_loop().time() > quiet_for)
        assert not connection.closed.is_set() and not any(watch.task.done() for watch in watches)
        connection.silent = True
        for watch in watches:
            with pytest.raises(ApiUnansweredError, match="no answer to a ping") as caught:
                await watch.task
            assert not caught.value.is_outage
        await until(connection.closed.is_set)


async def test_a_connection_without_a_watch_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_connection, "PING_AFTER_SECONDS", 0.05)
    async with watching(tmp_path, 1) as (server, [watch]):
        await watch.cancel()
        await until(server.connections[0].closed.is_set)


@pytest.mark.parametrize(
    "garbage",
    [
        (2**24 - 1).to_bytes(3, "big") + b"\x00\x00" + (1).to_bytes(4, "big"),  # the head of an enormous frame
        (16384).to_bytes(3, "big") + b"\x01\x00" + (1).to_bytes(4, "big") + bytes(16384),  # a head without an end
        (5).to_bytes(3, "big") + b"\x01\x04" + (1).to_bytes(4, "big") + b"\xff\xff\xff\xff\xff",  # no HPACK
    ],
)
async def test_what_breaks_the_protocol_or_its_limits_ends_the_connection(tmp_path: Path, garbage: bytes) -> None:
    async with watching(tmp_path, 2) as (server, watches):
        for _ in range(100):
            server.connections[0].transport.write(garbage)
        for watch in watches:
            with pytest.raises(ApiUnreachableError, match="the answer is not HTTP/2"):
                await watch.task
        await until(server.connections[0].closed.is_set)


async def test_a_server_without_http2_is_watched_over_http1_and_not_asked_each_time(tmp_path: Path) -> None:
    async with serving(server_context(tmp_path, CA.issue("api"), requires_certificate=False)) as server:
        handshakes = 0

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(event("a"))
            return response

        server.handler = answer
        async with client_of(tmp_path) as client:
            put_credentials(tmp_path, 1, server.url, ca_file=CA.pem)
            connection = await client._current.get()
            assert connection.http2 is not None
            dialled = connection.http2._dial

            async def counted() -> None:
                nonlocal handshakes
                handshakes += 1
                await dialled()

            connection.http2._dial = counted  # type: ignore[method-assign]
            for _ in range(3):
                watch = Watch(client)
                await watch.task
                assert len(watch.found) == 1
            assert handshakes == 1 and not client.shares_watches


async def test_new_credentials_get_a_new_connection_and_old_watches_end_on_theirs(tmp_path: Path) -> None:
    async with serving_http2(tmp_path, with_client_certificates=True) as server, client_of(tmp_path) as client:

        def identity(version: int) -> None:
            pair = CA.issue(f"system:node:{version}")
            put_credentials(
                tmp_path,
                version,
                server.url,
                ca_file=CA.pem,
                client_certificate_file=pair.certificate,
                client_key_file=pair.key,
            )

        identity(1)
        old = Watch(client, "old")
        await old.opened.wait()
        identity(2)
        new = Watch(client, "new")
        await new.opened.wait()
        assert [connection.peer for connection in server.connections] == ["system:node:1", "system:node:2"]
        server.asked[0].send(event("a"))
        await until(lambda: len(old.found) == 1)
        server.asked[0].end()
        await old.task
        await until(server.connections[0].closed.is_set)
        assert not new.task.done()
        await new.cancel()


async def test_a_refused_token_is_renewed_for_a_watch(tmp_path: Path) -> None:
    async with serving_http2(tmp_path) as server, client_of(tmp_path) as client:

        def answer(asked: Asked) -> None:
            if asked.headers["authorization"] == "Bearer new":
                asked.head()
                return
            put_credentials(tmp_path, 2, server.url, ca_file=CA.pem, token_file=b"new")
            asked.head(401)
            asked.end()

        server.handler = answer
        put_credentials(tmp_path, 1, server.url, ca_file=CA.pem, token_file=b"old")
        watch = Watch(client)
        await watch.opened.wait()
        await watch.cancel()


async def test_a_watch_without_an_answer_is_reset_and_is_no_outage(tmp_path: Path) -> None:
    async with serving_http2(tmp_path) as server, client_of(tmp_path) as client:
        server.handler = lambda _: None
        put_credentials(tmp_path, 1, server.url, ca_file=CA.pem)
        with pytest.raises(ApiUnansweredError, match="no answer in time") as caught:
            await Watch(client, opened_within=2.0).task
        assert not caught.value.is_outage
        await until(lambda: server.connections[0].resets == [1])
