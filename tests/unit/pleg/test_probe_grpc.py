"""grpc probes against a server of the gRPC library, and against what is none."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import grpc
import grpc.aio
import pytest

from services.bootstrap.adapters.serving_pair import make_self_signed
from services.pleg.adapters.probe_grpc import probe_grpc
from services.pleg.core.grpc_health import outcome_of
from services.pleg.core.probe_worker import Verdict
from shared.http_get.http2 import Exchange
from tests.support.agents.free_ports import free_ports
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.http_get.frames import END_HEADERS, END_STREAM, SETTINGS, Frame, block, frame

HOST = "127.0.0.1"
AGENT = "kube-probe/1.36"
F = Verdict.FAILURE
RPC_FAILED = "error: health rpc probe failed: rpc error: "


class Health:
    """Answers by the name of the service; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, dict[str, Any]]] = []
        self.left = 0.0

    async def check(self, request: bytes, context: Any) -> bytes:
        self.asked.append((request, dict(context.invocation_metadata())))
        self.left = context.time_remaining()
        match request[2:].decode():
            case "sick":
                return b"\x08\x02"
            case "newer":
                return b"\x12\x03abc\x08\x01\x1d\x01\x02\x03\x04\x21\x01\x02\x03\x04\x05\x06\x07\x08"
            case "odd":
                return b"\x08\x09"
            case "broken":
                return b"\x08"
            case "lost":
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such sérvice: 100%")
            case "slow":
                await asyncio.sleep(WAIT_SECONDS)
        return b"\x08\x01"


@asynccontextmanager
async def serving(health: Health | None, pair: tuple[bytes, bytes] | None = None) -> AsyncIterator[int]:
    """`pair`: certificate and key of a server with TLS."""
    server = grpc.aio.server()
    if health is not None:
        handler = {"Check": grpc.unary_unary_rpc_method_handler(health.check)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", handler),))
    if pair is None:
        port = server.add_insecure_port(f"{HOST}:0")
    else:
        port = server.add_secure_port(f"{HOST}:0", grpc.ssl_server_credentials([(pair[1], pair[0])]))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@pytest.mark.parametrize(
    ("service", "verdict", "output"),
    [
        ("", Verdict.SUCCESS, "service healthy"),
        ("newer", Verdict.SUCCESS, "service healthy"),
        ("sick", F, 'service unhealthy (responded with "NOT_SERVING")'),
        ("odd", F, 'service unhealthy (responded with "9")'),
        ("lost", F, f"{RPC_FAILED}code = NotFound desc = no such sérvice: 100%"),
        ("slow", F, "timeout: health rpc did not complete within 3s"),
        (
            "broken",
            F,
            f"{RPC_FAILED}code = Internal desc = grpc: failed to unmarshal the received message",
        ),
    ],
)
async def test_the_status_of_a_service_decides(service: str, verdict: Verdict, output: str) -> None:
    health = Health()
    limit = 3 if service == "slow" else WAIT_SECONDS
    async with serving(health) as port:
        outcome = await probe_grpc(HOST, port, service, limit, AGENT)
    assert (outcome.verdict, outcome.output) == (verdict, output)
    name = service.encode()
    ((asked, metadata),) = health.asked
    assert asked == (b"\x0a" + bytes([len(name)]) + name if name else b"")
    assert metadata["user-agent"] == "kube-probe/1.36" and 0 < health.left <= limit


async def test_a_server_without_the_service_has_a_message_of_its_own() -> None:
    async with serving(None) as port:
        outcome = await probe_grpc(HOST, port, "", WAIT_SECONDS, AGENT)
    words = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "
    assert outcome.verdict is F and outcome.output.startswith(words)


async def test_without_a_listener_the_complete_timeout_passes() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        port = unused.getsockname()[1]
        began = asyncio.get_running_loop().time()
        outcome = await probe_grpc(HOST, port, "", 0.3, AGENT)
    assert asyncio.get_running_loop().time() - began >= 0.29
    words = f'timeout: failed to connect service "{HOST}:{port}" within 300ms: context deadline exceeded'
    assert outcome.output == words


async def test_a_server_that_comes_up_in_time_is_found() -> None:
    [port] = free_ports(1)
    probing = asyncio.create_task(probe_grpc(HOST, port, "", WAIT_SECONDS, AGENT))
    await asyncio.sleep(0)
    server = await asyncio.start_server(answering(b""), HOST, port)
    async with server:
        assert (await probing).verdict is Verdict.SUCCESS


def answering(answer: bytes, *, first: bytes = b"") -> Any:
    """A handler that sends `first` at once (else a healthy answer to the request) and then `answer`."""
    head = block((":status", "200"))
    healthy = (
        SETTINGS
        + frame(Frame.HEADERS, END_HEADERS, head)
        + frame(Frame.DATA, 0, b"\0\0\0\0\x02\x08\x01")
        + frame(Frame.HEADERS, END_HEADERS | END_STREAM, block(("grpc-status", "0")))
    )

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if answer or first:
                writer.write(first + answer)
            else:
                await reader.read(1000)
                writer.write(healthy)
            await writer.drain()
            writer.write_eof()
            await reader.read()
        except OSError:
            pass
        finally:
            writer.close()

    return connected


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (SETTINGS, "code = Unavailable desc = error reading from server: EOF"),
        (SETTINGS + frame(Frame.RST_STREAM, 0, b"\0\0\0\x07"), "code = Unavailable desc = stream terminated by RST_"),
        (
            SETTINGS + frame(Frame.DATA, 8, b"\x07a"),
            "code = Internal desc = http2: Received frame with invalid padding",
        ),
        (
            SETTINGS + frame(Frame.HEADERS, END_HEADERS | END_STREAM, block((":status", "503"))),
            "code = Unavailable desc = unexpected HTTP status code received from server: 503",
        ),
    ],
)
async def test_an_answer_that_breaks_off_is_no_health(answer: bytes, output: str) -> None:
    async with await asyncio.start_server(answering(answer), HOST, 0) as server:
        outcome = await probe_grpc(HOST, server.sockets[0].getsockname()[1], "", WAIT_SECONDS, AGENT)
    assert outcome.verdict is F
    assert outcome.output.startswith(RPC_FAILED + output)


async def test_what_does_not_speak_http2_cannot_be_connected() -> None:
    async with await asyncio.start_server(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), HOST, 0) as server:
        outcome = await probe_grpc(HOST, server.sockets[0].getsockname()[1], "", 0.3, AGENT)
    assert "timeout: failed to connect service" in outcome.output


@pytest.mark.parametrize("body", [b"", b"\0\0\0\0\x09\x08\x01", b"\x01\0\0\0\x02\x08\x01", b"\0\0\0\0\x02\x08\x01\0"])
def test_a_body_that_is_not_one_plain_message(body: bytes) -> None:
    exchange = Exchange()
    exchange.body += body
    exchange.headers, exchange.trailers = {":status": "200"}, {"grpc-status": "0"}
    assert outcome_of(exchange, "1s").verdict is F


def test_a_status_that_is_no_code() -> None:
    exchange = Exchange()
    exchange.headers, exchange.trailers = {":status": "200"}, {"grpc-status": "x"}
    assert "server closed the stream without sending trailers" in outcome_of(exchange, "1s").output
    exchange.trailers = {"grpc-status": "77", "grpc-message": "%41"}
    assert outcome_of(exchange, "1s").output.endswith("rpc error: code = Code(77) desc = A")


@pytest.mark.long
async def test_a_server_with_tls_is_asked_without_verification() -> None:
    health, pair = Health(), make_self_signed("of-no-one", datetime.now(UTC))
    async with serving(health, pair) as port:
        outcome = await probe_grpc(HOST, port, "db", WAIT_SECONDS, AGENT, tls=True)
    assert (outcome.verdict, outcome.output) == (Verdict.SUCCESS, "service healthy")
    assert [request for request, _ in health.asked] == [b"\x0a\x02db"]


async def test_a_server_without_tls_is_not_reached_in_it() -> None:
    async with serving(Health()) as port:
        outcome = await probe_grpc(HOST, port, "", 1.0, AGENT, tls=True)
    assert outcome.verdict is Verdict.FAILURE
    target = f"{HOST}:{port}"
    text = f'timeout: failed to connect service "{target}" within 1s: context deadline exceeded'
    assert outcome.output == text
