"""httpGet over TLS where the server settles on HTTP/2."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.bootstrap.adapters.serving_pair import make_self_signed
from services.pleg.adapters.probe_http import probe_http
from services.pleg.core.probe_outcome import MAX_OUTPUT_BYTES, Outcome
from services.pleg.core.probe_spec import HttpHandler
from services.pleg.core.probe_worker import Verdict
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.http_get.frames import END_HEADERS, END_STREAM, SETTINGS, Frame, block, fields_of, frame

HOST = "127.0.0.1"
AGENT = "kube-probe/1.36"


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, content in zip(("crt", "key"), make_self_signed("node1", datetime.now(UTC)), strict=True):
        (tmp_path / name).write_bytes(content)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    context.set_alpn_protocols(["h2"])  # and nothing else
    return context


def answer(status: str, *frames: bytes, **headers: str) -> bytes:
    fields = [(":status", status), *((name.replace("_", "-"), value) for name, value in headers.items())]
    return SETTINGS + frame(Frame.HEADERS, END_HEADERS, block(*fields)) + b"".join(frames)


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None, *answers: bytes) -> AsyncIterator[tuple[int, list[dict[str, str]]]]:
    """One answer per connection. (port, the headers of the requests)"""
    asked: list[dict[str, str]] = []
    left, handlers = list(answers), asyncio.TaskGroup()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handlers.create_task(answered(reader, writer))

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readexactly(24)
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                if head[3] == Frame.HEADERS:
                    break
            asked.append(dict(fields_of(payload)))
            writer.write(left.pop(0))
            await writer.drain()
            await reader.read()
        writer.transport.abort()
        await asyncio.sleep(0)  # the transport closes its socket in the next turn

    async with handlers, await asyncio.start_server(connected, HOST, 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1], asked


async def get(port: int, path: str = "/x?y=1", **headers: str) -> Outcome:
    return await probe_http(
        HttpHandler("https", "", port, path, tuple(headers.items())), HOST, port, WAIT_SECONDS, AGENT
    )


@pytest.mark.long
async def test_the_request_has_the_same_content_as_in_http_1(tls: ssl.SSLContext) -> None:
    body = frame(Frame.DATA, END_STREAM, b"fine")
    async with serving(tls, answer("200", body)) as (port, asked):
        assert await get(port, Host="probed.example", Authorization="secret") == Outcome(Verdict.SUCCESS, "fine")
    assert asked == [
        {
            ":method": "GET",
            ":scheme": "https",
            ":path": "/x?y=1",
            ":authority": "probed.example",
            "user-agent": "kube-probe/1.36",
            "accept": "*/*",
            "authorization": "secret",
        }
    ]


@pytest.mark.long
async def test_a_status_decides_and_a_redirect_is_followed(tls: ssl.SSLContext) -> None:
    there = answer("302", frame(Frame.DATA, END_STREAM), location="/there")
    bad = answer("500", frame(Frame.DATA, END_STREAM, b"no"))
    async with serving(tls, there, bad) as (port, asked):
        assert await get(port) == Outcome(Verdict.FAILURE, "HTTP probe failed with statuscode: 500")
    assert [request[":path"] for request in asked] == ["/x?y=1", "/there"]


@pytest.mark.long
async def test_of_a_long_body_no_more_is_read_than_shown(tls: ssl.SSLContext) -> None:
    pieces = frame(Frame.DATA, 0, b"x" * 8000) * 2  # and never an end
    async with serving(tls, answer("200", pieces)) as (port, _):
        assert (await get(port)).output == "x" * MAX_OUTPUT_BYTES


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            SETTINGS + frame(Frame.RST_STREAM, 0, b"\0\0\0\x08"),
            "stream terminated by RST_STREAM with error code: CANCEL",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n", "http2: frame too large or not a SETTINGS frame"),
        (answer("abc", frame(Frame.DATA, END_STREAM)), "malformed non-numeric status"),
    ],
)
async def test_an_answer_that_is_none_is_a_failure(tls: ssl.SSLContext, answer: bytes, words: str) -> None:
    async with serving(tls, answer) as (port, _):
        outcome = await get(port)
    assert outcome.verdict is Verdict.FAILURE and words in outcome.output
    assert outcome.output.startswith(f'Get "https://{HOST}:{port}/x?y=1": ')


async def test_a_body_that_breaks_off_is_no_verdict(tls: ssl.SSLContext) -> None:
    reset = frame(Frame.DATA, 0, b"abc") + frame(Frame.RST_STREAM, 0, b"\0\0\0\x08")
    async with serving(tls, answer("200", reset)) as (port, _):
        problem = "stream terminated by RST_STREAM with error code: CANCEL"
        assert await get(port) == Outcome(Verdict.ERROR, problem, "failure")


async def test_a_server_that_speaks_http_2_without_tls_is_asked_in_it() -> None:
    body = frame(Frame.DATA, END_STREAM, b"fine")
    async with serving(None, answer("302", location="/there"), answer("200", body)) as (port, asked):
        handler = HttpHandler("http", "", port, "/x", http2=True)
        assert await probe_http(handler, HOST, port, WAIT_SECONDS, AGENT) == Outcome(Verdict.SUCCESS, "fine")
    assert [(fields[":scheme"], fields[":path"]) for fields in asked] == [("http", "/x"), ("http", "/there")]
