"""exec, attach, portForward and run over real sockets, against a streaming server that echoes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bus.messages.sources import DesiredPod, MirrorPod
from services.server.core.routes import ServedEndpoints
from shared.cri.interface import ExecResult, RuntimeCallError
from shared.model.runtime import ContainerState
from shared.spdy.frames import Data, Frame, FrameDecoder, FrameEncoder, SynReply, SynStream
from tests.service.server.running import CONTAINER, CONTAINER_ID, NAMESPACE, POD, UID, Running, configuration, running
from tests.service.server.spdy_backend import Backend, streaming_backend
from tests.service.server.spdy_peer import Refused, SpdyPeer
from tests.support.waits.deadline import WAIT_SECONDS

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
EXEC = f"/exec/{NAMESPACE}/{POD}/{CONTAINER}"
ATTACH = f"/attach/{NAMESPACE}/{POD}/{CONTAINER}"
FORWARD = f"/portForward/{NAMESPACE}/{POD}"
RUN = f"/run/{NAMESPACE}/{POD}/{CONTAINER}"
UPGRADE = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
EXITED_7 = [{"reason": "ExitCode", "message": "7"}]


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with streaming_backend() as backend:
        yield backend


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend) -> AsyncIterator[Running]:
    """Streams are a matter of the main listener; here the read-only one serves them, so that TLS is not in the way."""
    monkeypatch.setattr("services.server.controllers.listeners.ServedEndpoints", _all_served)
    async with running(configuration(tmp_path)) as server:
        server.node.cri.streaming_url = f"http://127.0.0.1:{backend.port}"
        await server.node.run_pod()
        yield server


def _all_served(debugging: bool, checks: tuple[str, ...], **more: Any) -> ServedEndpoints:
    return ServedEndpoints(True, checks, **more)


async def spdy(server: Running, path: str, protocol: str = V4, headers: str = "") -> SpdyPeer:
    return await SpdyPeer.connect(server.config.read_only_port, path, protocol, headers=headers)


async def websocket(
    server: Running, path: str, *protocols: str
) -> aiohttp.client_reqrep.ClientResponse | aiohttp.ClientWebSocketResponse:
    return await server.client.ws_connect(server.read_only + path, protocols=protocols or (V5,), max_msg_size=0)


async def to_end(socket: Any) -> tuple[bytes, bytes, Any]:
    """stdout, stderr and the status of a v5 WebSocket."""
    channels = {1: b"", 2: b"", 3: b""}
    async with asyncio.timeout(WAIT_SECONDS):
        async for message in socket:
            channels[message.data[0]] += message.data[1:]
    return channels[1], channels[2], json.loads(channels[3])


def requests(server: Running, method: str) -> list[dict[str, Any]]:
    return server.node.cri.requests(method)


# Through to the runtime


async def test_a_spdy_client_talks_to_the_runtime_itself(server: Running, backend: Backend) -> None:
    headers = "Authorization: Bearer secret\r\nX-Forwarded-For: 10.0.0.1\r\n"
    async with await spdy(server, f"{EXEC}?command=cat&command=a%20b&input=1&output=1", headers=headers) as peer:
        assert peer.protocol == V4
        error = await peer.open(("streamType", "error"))
        stdin = await peer.open(("streamType", "stdin"))
        stdout = await peer.open(("streamType", "stdout"))
        await peer.send(stdin, b"hello", fin=True)
        assert await peer.finished(stdout) == b"hello"
        assert json.loads(await peer.finished(error))["details"]["causes"] == EXITED_7
    head = backend.heads[0]
    assert head.startswith("POST /exec/token HTTP/1.1\r\n")
    assert "X-Forwarded-For: 10.0.0.1, 127.0.0.1\r\n" in head
    assert "Host: node\r\n" in head
    assert "secret" not in head
    assert requests(server, "Exec") == [
        {"container_id": CONTAINER_ID, "cmd": ["cat", "a b"], "stdin": True, "stdout": True}
    ]


async def test_the_runtimes_end_reaches_the_client_and_the_clients_the_runtime(
    server: Running, backend: Backend
) -> None:
    backend.hang_up = True
    async with await spdy(server, f"{EXEC}?command=cat&input=1&output=1") as peer:
        stdin = await peer.open(("streamType", "stdin"))
        await peer.send(stdin, b"", fin=True)
        await peer.until(lambda: peer.closed)
    backend.closed.clear()
    async with await spdy(server, f"{EXEC}?command=cat&input=1&output=1"):
        pass
    async with asyncio.timeout(WAIT_SECONDS):
        await backend.closed.wait()


async def test_a_stream_that_has_ended_leaves_nothing_behind(server: Running) -> None:
    listener = server.service.listeners["read-only"]
    for _ in range(3):
        async with await spdy(server, f"{EXEC}?command=cat&input=1&output=1"):
            pass
    async with asyncio.timeout(WAIT_SECONDS):
        while len(listener.connections) or listener.timers:
            await asyncio.sleep(0)


@pytest.mark.long
async def test_large_data_passes_both_ways_unchanged(server: Running) -> None:
    content = bytes(range(256)) * 40_000
    async with await spdy(server, f"{EXEC}?command=cat&input=1&output=1") as peer:
        await peer.open(("streamType", "error"))
        stdin, stdout = await peer.open(("streamType", "stdin")), await peer.open(("streamType", "stdout"))
        await peer.send(stdin, content, fin=True)
        assert await peer.finished(stdout) == content


async def test_a_client_that_does_not_read_holds_the_runtime_back(server: Running, backend: Backend) -> None:
    backend.flood = 256 << 20
    socket: Any = await websocket(server, f"{EXEC}?command=yes&output=1")
    async with asyncio.timeout(WAIT_SECONDS):
        await backend.stalled.wait()
    assert backend.flooded < backend.flood / 4
    socket._response.close()
    async with asyncio.timeout(WAIT_SECONDS):
        await backend.closed.wait()


async def test_the_other_services_may_go_once_a_stream_is_open(server: Running) -> None:
    async with await spdy(server, f"{EXEC}?command=cat&input=1&output=1") as peer:
        stdin, stdout = await peer.open(("streamType", "stdin")), await peer.open(("streamType", "stdout"))
        for service in ("bootstrap", "sources", "podsync", "volume", "pleg", "status"):
            server.node.network.kill(service)
        server.node.cri.reachable = False
        await peer.send(stdin, b"still here")
        await peer.until(lambda: peer.received[stdout] == b"still here")


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", 404, b"gone"),
        (
            b"HTTP/1.1 403 Forbidden\r\nX-Accepted: v4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
            403,
            b"no",
        ),
        (b"HTTP/1.0 503 Busy\r\n\r\nuntil the end", 503, b"until the end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 500, b"invalid upgrade response: status code 200\n"),
        (b"nonsense\r\n\r\n", 500, b"error sending request: malformed HTTP response 'nonsense'\n"),
    ],
)
async def test_the_runtimes_refusal_is_relayed(
    server: Running, backend: Backend, answer: bytes, status: int, body: bytes
) -> None:
    backend.refusal = answer
    with pytest.raises(Refused) as refused:
        await spdy(server, f"{EXEC}?command=x&output=1")
    assert (refused.value.status, refused.value.body) == (status, body)
    assert ("X-Accepted: v4" in refused.value.head) == (b"X-Accepted" in answer)


@pytest.mark.long
async def test_a_streaming_server_that_is_not_there(server: Running) -> None:
    server.node.cri.streaming_url = "http://127.0.0.1:1"
    text = "error dialing backend: dial tcp 127.0.0.1:1: connect: connection refused\n"
    url = f"{server.read_only}{EXEC}?command=x&output=1"
    assert await server.get(url, "POST", headers=UPGRADE) == (500, text)


# What is refused before


async def test_refusals(server: Running, subtests: pytest.Subtests) -> None:
    for path, status, body in [
        (f"{EXEC}?command=x", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        (f"{EXEC}?command=x&output=true", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        (f"{FORWARD}", 500, "Upgrade request required\n"),
        (f"{EXEC}?output=1", 500, "Upgrade request required\n"),
        (f"/exec/{NAMESPACE}/other/{CONTAINER}?output=1", 404, "pod does not exist"),
        (f"/exec/{NAMESPACE}/{POD}/other?output=1", 500, 'container not found ("other")'),
        (f"/exec/{NAMESPACE}/{POD}/other-uid/{CONTAINER}?output=1", 500, f'container not found ("{CONTAINER}")'),
        (f"/attach/{NAMESPACE}/{POD}/other?output=1", 500, f"container other not found in pod {POD}_{NAMESPACE}"),
        (f"/attach/{NAMESPACE}/{POD}/other-uid/{CONTAINER}?output=1", 500, f"pod {POD}_{NAMESPACE} not found"),
        (f"/portForward/{NAMESPACE}/other", 404, "pod does not exist"),
        (f"{FORWARD}/other-uid", 404, "pod not found"),
        (f"/run/{NAMESPACE}/other/{CONTAINER}?cmd=x", 404, "pod does not exist"),
    ]:
        with subtests.test(path):
            assert await server.get(server.read_only + path, "POST") == (status, body)


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("", 'query parameter "port" is required'),
        ("?port=", 'query parameter "port" cannot be empty'),
        ("?port=80,x", 'unable to parse "x" as a port: strconv.ParseUint: parsing "x": invalid syntax'),
        ("?port=0", 'port "0" must be > 0'),
        ("?port=70000", 'unable to parse "70000" as a port: strconv.ParseUint: parsing "70000": value out of range'),
    ],
)
async def test_a_websocket_port_forward_must_name_its_ports(server: Running, query: str, body: str) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert await server.get(f"{server.read_only}{FORWARD}{query}", headers=headers) == (400, body)


@pytest.mark.parametrize(
    ("code", "status", "retry_after"),
    [("NotFound", 404, None), ("ResourceExhausted", 429, "60"), ("Unknown", 500, None)],
)
async def test_an_error_of_the_runtime(server: Running, code: str, status: int, retry_after: str | None) -> None:
    error = RuntimeCallError("Exec", code, "no")
    server.node.cri.fail("Exec", code, "no")
    async with server.client.post(f"{server.read_only}{EXEC}?output=1", headers=UPGRADE) as response:
        assert (response.status, await response.text()) == (status, str(error))
        assert response.headers.get("Retry-After") == retry_after


async def test_a_container_that_has_ended_is_not_found(server: Running) -> None:
    server.node.observe("", ContainerState.EXITED)
    await server.node.network.settle()
    text = f'container not found ("{CONTAINER}")'
    assert await server.get(f"{server.read_only}{EXEC}?output=1", "POST") == (500, text)


# Which pod


async def test_a_static_pod_may_be_named_by_its_mirrors_uid(server: Running) -> None:
    mirror = MirrorPod(uid="mirror-1", name=POD, namespace=NAMESPACE, config_hash=UID, pod={})
    server.node.mirrors.put(f"{POD}_{NAMESPACE}", mirror)
    await server.node.network.settle()
    for uid in ("mirror-1", UID):
        path = f"/exec/{NAMESPACE}/{POD}/{uid}/{CONTAINER}?command=cat&output=1"
        async with await spdy(server, path) as peer:
            assert peer.protocol == V4


async def test_attach_goes_by_the_tty_of_the_spec(server: Running) -> None:
    containers = [{"name": CONTAINER, "tty": True}]
    pod = {"metadata": {"name": POD, "namespace": NAMESPACE, "uid": UID}, "spec": {"containers": containers}}
    server.node.desired.put(UID, DesiredPod(uid=UID, source="api", pod=pod))
    await server.node.network.settle()
    async with await spdy(server, f"{ATTACH}?input=1&output=1&error=1"):
        pass
    assert requests(server, "Attach") == [{"container_id": CONTAINER_ID, "stdin": True, "stdout": True, "tty": True}]


# /run


async def test_run_answers_output_and_errors_one_after_the_other(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.node.cri, "refuse_exec", lambda _: None)  # the fake has no such container
    server.node.cri.execute = lambda _, words: ExecResult(exit_code=0, stdout=" ".join(words).encode(), stderr=b"!")
    async with server.client.post(f"{server.read_only}{RUN}?cmd=echo%20'a%20b'") as response:
        assert (response.status, await response.read()) == (200, b"echo 'a b'!")
        assert response.headers["Content-Type"] == "application/json"
    server.node.cri.execute = lambda _, words: ExecResult(exit_code=3, stdout=b"lost", stderr=b"why")
    answer = await server.get(f"{server.read_only}{RUN}?cmd=x%20y", "POST")
    assert answer == (500, "command 'x y' exited with 3: why")


# WebSocket v5


async def test_v5_is_translated(server: Running, backend: Backend) -> None:
    socket: Any = await websocket(server, f"{EXEC}?command=cat&input=1&output=1&error=1", V5, V4)
    assert socket.protocol == V5
    assert (await socket.receive()).data == b"\x01"
    await socket.send_bytes(b"\0hello ")
    await socket.send_bytes(b"")
    await socket.send_bytes(b"\x09ignored")
    await socket.send_bytes(b"\0world")
    await socket.send_bytes(b"\xff\0")
    output, errors, status = await to_end(socket)
    assert (output, errors, status["details"]["causes"]) == (b"hello world", b"bye", EXITED_7)
    assert socket.close_code == 1000
    head = backend.heads[0]
    assert head.startswith("POST /exec/token HTTP/1.1\r\n")
    assert "Upgrade: SPDY/3.1" in head
    assert "websocket" not in head.lower()


async def test_v5_success_and_resize(server: Running, backend: Backend) -> None:
    backend.status = {"status": "Success"}
    socket: Any = await websocket(server, f"{EXEC}?command=sh&input=1&output=1&tty=1")
    await socket.send_bytes(b'\x04{"Width":80,"Height":24}')
    await socket.send_bytes(b"\xff\0")
    assert (await to_end(socket))[2] == {"metadata": {}, "status": "Success"}
    assert backend.resizes == [b'{"Width":80,"Height":24}']


async def test_v5_a_runtime_that_breaks_off_is_an_error_status(server: Running, backend: Backend) -> None:
    backend.hang_up = True
    socket: Any = await websocket(server, f"{EXEC}?command=cat&input=1&output=1")
    await socket.send_bytes(b"\xff\0")
    _, _, status = await to_end(socket)
    assert status["reason"] == "InternalError"
    assert status["message"] == "Internal error occurred: error reading from error stream: unexpected EOF"


async def test_v5_a_refusal_of_the_runtime_is_an_error_status(server: Running, backend: Backend) -> None:
    backend.refusal = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone"
    socket: Any = await websocket(server, f"{EXEC}?command=cat&output=1")
    _, _, status = await to_end(socket)
    assert status["message"] == "Internal error occurred: unable to upgrade connection: gone"


@pytest.mark.parametrize("close", [b"\xff", b"\xff\x05", b"\xff\0\0"])
async def test_v5_a_malformed_close_ends_the_connection(server: Running, backend: Backend, close: bytes) -> None:
    socket: Any = await websocket(server, f"{EXEC}?command=cat&input=1&output=1")
    await socket.receive()
    await socket.send_bytes(close)
    async with asyncio.timeout(WAIT_SECONDS):
        assert [message async for message in socket] == []
        await backend.closed.wait()


async def test_v5_a_client_that_leaves_ends_the_runtimes_connection(server: Running, backend: Backend) -> None:
    socket: Any = await websocket(server, f"{EXEC}?command=cat&input=1&output=1")
    await socket.receive()
    await socket.close()
    async with asyncio.timeout(WAIT_SECONDS):
        await backend.closed.wait()


async def test_other_websocket_protocols_are_the_runtimes_own(server: Running, backend: Backend) -> None:
    backend.upgrade = "websocket"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.read_only_port)
    bearer = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    writer.write(
        f"GET {EXEC}?command=x&output=1 HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Protocol: {bearer}, {V4}\r\nSec-WebSocket-Key: k\r\n\r\nearly".encode()
    )
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(5) == b"early"
    writer.close()
    await writer.wait_closed()
    assert f"Sec-WebSocket-Protocol: {V4}\r\n" in backend.heads[0]
    assert backend.heads[0].startswith("GET /exec/token")


# Tunnelled port-forward


async def test_a_port_forward_inside_a_websocket(server: Running, backend: Backend) -> None:
    backend.protocol = "portforward.k8s.io"
    socket: Any = await websocket(server, FORWARD, "SPDY/3.1+portforward.k8s.io")
    assert socket.protocol == "SPDY/3.1+portforward.k8s.io"
    encoder, decoder = FrameEncoder(), FrameDecoder()
    frames: list[Frame] = [
        SynStream(1, (("streamType", "error"), ("port", "80"), ("requestID", "0"))),
        SynStream(3, (("streamType", "data"), ("port", "80"), ("requestID", "0"))),
        Data(3, b"knock"),
    ]
    raw = b"".join(encoder.encode(frame) for frame in frames)
    for start in range(0, len(raw), 7):  # where messages end means nothing
        await socket.send_bytes(raw[start : start + 7])
    answers: list[Any] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while Data(3, b"knock") not in answers:
            answers += decoder.feed((await socket.receive()).data)
    assert answers[:2] == [SynReply(1), SynReply(3)]
    await socket.close()
    async with asyncio.timeout(WAIT_SECONDS):
        await backend.closed.wait()
    assert "X-Stream-Protocol-Version: portforward.k8s.io\r\n" in backend.heads[0]
    assert requests(server, "PortForward") == [{"pod_sandbox_id": "s1"}]


async def test_a_tunnel_the_runtime_refuses_is_refused_before_the_upgrade(server: Running, backend: Backend) -> None:
    backend.refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await websocket(server, FORWARD, "SPDY/3.1+portforward.k8s.io")
    assert refused.value.status == 403
