"""httpGet and tcpSocket against local servers: what is sent, what is read, and the words for what goes wrong."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.bootstrap.adapters.serving_pair import make_self_signed
from services.pleg.adapters.probe_http import probe_http
from services.pleg.adapters.probe_try import ProbeRunner, probe_tcp
from services.pleg.core.probe_outcome import Outcome
from services.pleg.core.probe_spec import HttpHandler, ProbeKind, ProbeSpec
from services.pleg.core.probe_worker import Verdict
from shared.time.clock import SystemClock
from tests.fakes.runtime import FakeRuntime
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = pytest.mark.both_loops

HOST = "127.0.0.1"
AGENT = "kube-probe/1.36"
Serve = Callable[[str, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server:
    """Answers each request by `serve(head, writer)`; keeps the heads."""

    def __init__(self, serve: Serve | bytes | list[bytes]) -> None:
        self.heads: list[str] = []
        self.port = 0
        self.left = asyncio.Event()  # set at the end of the test: lets a slow answer go
        self._serve = serve

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            if callable(self._serve):
                await self._serve(head, writer)
            else:
                writer.write(self._serve if isinstance(self._serve, bytes) else self._serve.pop(0))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort() if self.left.is_set() else writer.close()


@asynccontextmanager
async def serving(
    serve: Serve | bytes | list[bytes], *, tls: ssl.SSLContext | None = None, host: str = HOST
) -> AsyncIterator[Server]:
    server = Server(serve)
    listening = await asyncio.start_server(server.connected, host, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        server.left.set()
        listening.close()
        await listening.wait_closed()


async def get(
    server: Server,
    path: str = "/",
    *,
    headers: dict[str, str] | None = None,
    timeout: float = WAIT_SECONDS,
    scheme: str = "http",
) -> Outcome:
    handler = HttpHandler(scheme, "", server.port, path, tuple((headers or {}).items()))
    return await probe_http(handler, HOST, server.port, timeout, AGENT)


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Text", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def test_the_request_is_the_kubelets() -> None:
    async with serving(OK) as server:
        assert await get(server, "/healthz?full=1#part") == Outcome(Verdict.SUCCESS, "ok")
        (head,) = server.heads
        assert head == (
            f"GET /healthz?full=1 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUser-Agent: kube-probe/1.36\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n"
        )


async def test_a_try_names_the_release_that_is_emulated() -> None:
    async with serving(OK) as server:
        for release in ("1.36", "1.37"):
            runner = ProbeRunner(FakeRuntime(), SystemClock(), 1.0, release)
            spec = ProbeSpec(
                kind=ProbeKind.LIVENESS, container="c", sidecar=False, handler=HttpHandler("http", "", server.port, "/")
            )
            assert (await runner(spec, "id", HOST)).verdict is Verdict.SUCCESS
        assert ["kube-probe/1.36" in head for head in server.heads] == [True, False]
        assert "kube-probe/1.37" in server.heads[1]


async def test_headers_as_listed_host_overridden_and_an_empty_accept_left_out() -> None:
    async with serving(OK) as server:
        await get(server, "a b", headers={"x-token": "t", "Host": "example.com", "Accept": "", "user-agent": "mine"})
        assert server.heads == [
            "GET /a%20b HTTP/1.1\r\nHost: example.com\r\nX-Token: t\r\nUser-Agent: mine\r\nConnection: close\r\n\r\n"
        ]


async def test_a_header_that_would_become_two_is_refused() -> None:
    async with serving(OK) as server:
        outcome = await get(server, headers={"X-A": "1\r\nX-B: 2"})
        assert outcome.verdict is Verdict.FAILURE and 'invalid header field value for "X-A"' in outcome.output
        assert server.heads == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Outcome(Verdict.SUCCESS, "body")),
        (299, Outcome(Verdict.SUCCESS, "body")),
        (304, Outcome(Verdict.WARNING, "Probe terminated redirects, Response body: ")),
        (300, Outcome(Verdict.WARNING, "Probe terminated redirects, Response body: body")),
        (400, Outcome(Verdict.FAILURE, "HTTP probe failed with statuscode: 400")),
        (503, Outcome(Verdict.FAILURE, "HTTP probe failed with statuscode: 503")),
    ],
)
async def test_status_codes(status: int, expected: Outcome) -> None:
    async with serving(answer(status, b"body")) as server:
        assert await get(server) == expected


async def test_redirects_on_the_host_are_followed_with_the_headers() -> None:
    answers = [answer(302, b"", "Location: /there?x"), answer(307, b"", "Location: here"), OK]
    async with serving(answers) as server:
        assert (await get(server, "/a/b", headers={"X-A": "1", "Host": "h"})).verdict is Verdict.SUCCESS
        assert [head.split()[1] for head in server.heads] == ["/a/b", "/there?x", "/here"]
        assert all("X-A: 1\r\n" in head and "Host: h\r\n" in head for head in server.heads)


async def test_a_redirect_to_another_host_is_a_warning_and_not_followed() -> None:
    async with serving(answer(302, b"moved", "Location: http://example.invalid/")) as server:
        assert await get(server) == Outcome(Verdict.WARNING, "Probe terminated redirects, Response body: moved")


async def test_redirects_without_end_end_after_ten() -> None:
    async with serving(answer(302, b"", "Location: /again")) as server:
        outcome = await get(server)
        assert outcome == Outcome(
            Verdict.FAILURE, f'Get "http://127.0.0.1:{server.port}/again": stopped after 10 redirects'
        )
        assert len(server.heads) == 10


async def test_a_chunked_body_with_extensions_and_trailers() -> None:
    chunks = b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
    async with serving(CHUNKED + chunks) as server:
        assert await get(server) == Outcome(Verdict.SUCCESS, "abc0123456789")


@pytest.mark.parametrize("chunks", [b"zz\r\nabc", b"\r\n", b"-3\r\nabc\r\n0\r\n\r\n"])
async def test_chunks_that_are_none(chunks: bytes) -> None:
    async with serving(CHUNKED + chunks) as server:
        assert await get(server) == Outcome(Verdict.ERROR, "invalid byte in chunk length", "failure")


async def test_a_body_is_read_to_10_kib_whatever_its_framing() -> None:
    async def endless(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x" * 65536)
            await writer.drain()

    big = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5000\r\n" + b"x" * 0x5000 + b"\r\n0\r\n\r\n"
    for serve in (endless, big, answer(200, b"x" * 100_000)):
        async with serving(serve) as server:
            assert await get(server) == Outcome(Verdict.SUCCESS, "x" * 10240)


async def test_a_body_until_the_connection_ends_and_one_of_binary() -> None:
    async with serving(b"HTTP/1.0 200\r\n\r\n\xff\x00ok") as server:
        assert await get(server) == Outcome(Verdict.SUCCESS, "\ufffd\x00ok")


async def test_interim_answers_are_passed_over() -> None:
    async with serving(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK) as server:
        assert await get(server) == Outcome(Verdict.SUCCESS, "ok")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "EOF"),
        (b"HTTP/1.1 200 OK\r\nContent-", "unexpected EOF"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc", 'bad Content-Length "x"'),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 'malformed HTTP response "SSH-2.0-OpenSSH_9.2"'),
        (b"\x00\xff\x16\x03", 'malformed HTTP response "\\x00\\xff\\x16\\x03"'),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "server response headers exceeded"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "server response headers exceeded"),
    ],
)
async def test_what_is_no_answer_is_a_failure_with_a_reason(answer: bytes, problem: str) -> None:
    async with serving(answer) as server:
        outcome = await get(server)
        assert outcome.verdict is Verdict.FAILURE
        assert outcome.output.startswith(f'Get "http://127.0.0.1:{server.port}/": ') and problem in outcome.output


@pytest.mark.parametrize(
    ("head", "rest", "problem"),
    [
        (b"HTTP/1.1 100 \r\n\r\n", b"HTTP/1.1 100 \r\n\r\n", "server response headers exceeded 65536 bytes"),
        (b"HTTP/1.1 103 \r\n", b"A:\n", "server response headers exceeded 65536 bytes"),
        (CHUNKED, b"1;" + b"x" * 4000 + b"\r\na\r\n", "chunked encoding contains too much non-data"),
        (CHUNKED, b"1;" + b"x" * 4096, "header line too long"),
    ],
)
async def test_an_answer_without_end_is_broken_off_while_the_loop_stays_free(
    head: bytes, rest: bytes, problem: str
) -> None:
    sent = 0

    async def endless(_: str, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(head)
        while not writer.is_closing():
            writer.write(rest * (65536 // len(rest)))
            sent += 65536
            await writer.drain()

    async with serving(endless) as server:
        assert problem in (await get(server)).output
        assert sent < 16 << 20, "the server could go on sending"


@pytest.mark.long
async def test_many_interim_answers_and_small_chunks_within_the_limits_are_read() -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\n" * 2000
    async with serving(interim + CHUNKED + b"1\r\na\r\n" * 10_000 + b"0\r\n\r\n") as server:
        assert await get(server) == Outcome(Verdict.SUCCESS, "a" * 10_000)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"", "(Client.Timeout exceeded while awaiting headers)"),
        (b"HTTP/1.1 200 OK\r\n", "(Client.Timeout exceeded while awaiting headers)"),
    ],
)
async def test_a_timeout_before_the_head_is_a_failure(first: bytes, words: str) -> None:
    async def slow(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await server.left.wait()

    async with serving(slow) as server:
        outcome = await get(server, timeout=0.05)
        assert outcome.verdict is Verdict.FAILURE and outcome.output.endswith(f"context deadline exceeded {words}")


@pytest.mark.parametrize("status", [200, 503])
@pytest.mark.parametrize("framing", ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nabc"])
async def test_a_body_that_breaks_off_is_no_verdict(status: int, framing: str) -> None:
    async with serving(f"HTTP/1.1 {status} Text\r\n{framing}".encode()) as server:
        assert await get(server) == Outcome(Verdict.ERROR, "unexpected EOF", "failure")


async def test_a_body_that_does_not_end_in_time_is_no_verdict() -> None:
    async def slow(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(OK[:-1])
        await server.left.wait()

    async with serving(slow) as server:
        problem = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
        # The head has to come within this time, also where the machine is busy.
        assert await get(server, timeout=2) == Outcome(Verdict.ERROR, problem, "failure")


async def test_the_body_of_a_redirect_that_is_followed_is_not_read() -> None:
    broken = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 10\r\n\r\nabc"
    async with serving([broken, OK]) as server:
        assert await get(server) == Outcome(Verdict.SUCCESS, "ok")


async def test_no_process_listens() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
        refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
        handler = HttpHandler("http", "", port, "/", ())
        assert await probe_http(handler, HOST, port, WAIT_SECONDS, AGENT) == Outcome(
            Verdict.FAILURE, f'Get "http://{HOST}:{port}/": {refused}'
        )
        assert await probe_tcp(HOST, port, WAIT_SECONDS) == Outcome(Verdict.FAILURE, refused)


async def test_a_host_that_does_not_exist() -> None:
    outcome = await probe_tcp("no-such-host.invalid", 80, WAIT_SECONDS)
    assert outcome.verdict is Verdict.FAILURE and "no-such-host.invalid" in outcome.output


async def test_a_port_that_opens_is_a_tcp_success() -> None:
    async with serving(OK) as server:
        assert await probe_tcp(HOST, server.port, WAIT_SECONDS) == Outcome(Verdict.SUCCESS)


async def test_tcp_to_a_full_backlog_times_out() -> None:
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind((HOST, 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex((HOST, port))
        assert await probe_tcp(HOST, port, 0.05) == Outcome(Verdict.FAILURE, f"dial tcp {HOST}:{port}: i/o timeout")


async def test_ipv6() -> None:
    try:
        serve = serving(OK, host="::1")
        server = await serve.__aenter__()
    except OSError:
        pytest.skip("no IPv6 on the loopback")
    handler = HttpHandler("http", "", server.port, "/", ())
    assert await probe_http(handler, "::1", server.port, WAIT_SECONDS, AGENT) == Outcome(Verdict.SUCCESS, "ok")
    assert f"Host: [::1]:{server.port}\r\n" in server.heads[0]
    await serve.__aexit__(None, None, None)


@pytest.mark.long
async def test_tls_is_not_verified(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, content in zip(("crt", "key"), make_self_signed("node1", datetime.now(UTC)), strict=True):
        (tmp_path / name).write_bytes(content)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    async with serving(OK, tls=context) as server:
        assert await get(server, scheme="https") == Outcome(Verdict.SUCCESS, "ok")


async def test_https_to_a_server_without_tls() -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(connected, HOST, 0)
    port = listening.sockets[0].getsockname()[1]
    outcome = await probe_http(HttpHandler("https", "", port, "/", ()), HOST, port, WAIT_SECONDS, AGENT)
    assert outcome == Outcome(
        Verdict.FAILURE, f'Get "https://{HOST}:{port}/": http: server gave HTTP response to HTTPS client'
    )
    listening.close()
    await listening.wait_closed()


async def test_a_scheme_of_its_own() -> None:
    outcome = await probe_http(HttpHandler("ftp", "", 21, "/", ()), HOST, 21, WAIT_SECONDS, AGENT)
    assert outcome == Outcome(Verdict.FAILURE, 'Get "ftp://127.0.0.1:21/": unsupported protocol scheme "ftp"')
