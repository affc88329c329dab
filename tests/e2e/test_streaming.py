"""exec, attach, port-forward and run through a whole agent into pods of a real containerd, as an API server asks."""

import asyncio
import hashlib
import json
import os
import ssl
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from shared.model.objects import Object
from shared.spdy.frames import Data, FrameDecoder, FrameEncoder, SynStream
from tests.service.server.spdy_peer import Refused, SpdyPeer
from tests.support.agents.agent import NODE
from tests.support.agents.world import TICK_AND_RETURN_INPUT, World, busybox_pod
from tests.support.runtime.docker_limits import Limit
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
MEBIBYTE = 1 << 20
WAIT = 2 * WAIT_SECONDS  # seconds; 100 MiB pass through a process in Python
# The runtime applies a size some time after it was sent.
SIZE = "read line; until stty size | grep -q '45 123'; do sleep 0.1; done; stty size; exit 3"
SERVE = "mkdir /www; echo hello from the pod > /www/index.html; exec httpd -f -p 8080 -h /www"
ANONYMOUS = {
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World(config=ANONYMOUS) as world:
        world.put_manifest("web", _serving())
        world.put_manifest("echo", _attachable())
        await world.wait_served("web", "echo")
        yield world


def _serving() -> Object:
    """Return a pod that is ready once its server listens."""
    pod = busybox_pod("web", "sh", "-c", SERVE)
    pod["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    return pod


def _attachable() -> Object:
    pod = busybox_pod("echo", "sh", "-c", TICK_AND_RETURN_INPUT)
    pod["spec"]["containers"][0] |= {"stdin": True}
    return pod


def trusting() -> ssl.SSLContext:
    # Not the default context, which reads the authorities of the machine: 30 ms of CPU time each.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def path(kind: str, pod: str = "web", *command: str, **flags: int) -> str:
    query = "&".join(
        [*(f"command={quote(word)}" for word in command), *(f"{key}={value}" for key, value in flags.items())]
    )
    container = "" if kind == "portForward" else "/main"
    return f"/{kind}/default/{pod}-{NODE}{container}?{query}"


class Exec:
    """An exec or attach over SPDY, its streams by name."""

    def __init__(self, peer: SpdyPeer, streams: dict[str, int]) -> None:
        self.peer, self.streams = peer, streams

    @classmethod
    async def start(cls, world: World, target: str) -> "Exec":
        peer = await SpdyPeer.connect(world._port, target, V4, tls=trusting())
        names = ["error"]
        names += [
            name
            for flag, name in (("input", "stdin"), ("output", "stdout"), ("error", "stderr"))
            if f"{flag}=1" in target
        ]
        names += ["resize"] if "tty=1" in target else []
        return cls(peer, {name: await peer.open(("streamType", name)) for name in names})

    async def out(self, name: str = "stdout") -> bytes:
        return await self.peer.finished(self.streams[name], WAIT)

    async def status(self) -> Any:
        return json.loads(await self.out("error"))

    async def send(self, data: bytes, *, fin: bool = False, name: str = "stdin") -> None:
        await self.peer.send(self.streams[name], data, fin=fin)


async def run(world: World, *command: str, stdin: bytes | None = None, **flags: int) -> tuple[bytes, bytes, Any]:
    flags = {"output": 1, "error": 1, **({"input": 1} if stdin is not None else {}), **flags}
    session = await Exec.start(world, path("exec", "web", *command, **flags))
    async with session.peer:
        if stdin is not None:
            for start in range(0, len(stdin) or 1, 64 << 10):
                await session.send(stdin[start : start + (64 << 10)], fin=start + (64 << 10) >= len(stdin))
        output = await session.out()
        errors = await session.out("stderr") if "stderr" in session.streams else b""
        return output, errors, await session.status()


async def test_output_errors_and_exit_codes(world: World) -> None:
    output, errors, status = await run(world, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (output, errors) == (b"out\n", b"err\n")
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]
    assert (await run(world, "true"))[2]["status"] == "Success"


async def test_a_command_that_is_not_there_is_an_error_status(world: World) -> None:
    *_, status = await run(world, "/no/such/command")
    assert status["status"] == "Failure"


async def test_the_end_of_stdin_reaches_the_command(world: World) -> None:
    output, _, status = await run(world, "cat", stdin=b"one\ntwo")
    assert (output, status["status"]) == (b"one\ntwo", "Success")


async def test_fifty_mebibytes_in_and_out_are_the_same_bytes(world: World) -> None:
    content = os.urandom(MEBIBYTE) * 50
    output, _, status = await run(world, "cat", stdin=content)
    assert status["status"] == "Success"
    assert hashlib.sha256(output).digest() == hashlib.sha256(content).digest()


async def test_a_tty_echoes_and_knows_its_size(world: World) -> None:
    target = path("exec", "web", "sh", "-c", SIZE, input=1, output=1, tty=1)
    session = await Exec.start(world, target)
    async with session.peer:
        await session.send(b'{"Width":123,"Height":45}', name="resize")
        await session.send(b"go\n")
        output = await session.out()
        assert b"45 123" in output
        assert (await session.status())["details"]["causes"][0]["message"] == "3"


async def test_attach_talks_to_the_containers_own_process(world: World) -> None:
    session = await Exec.start(world, path("attach", "echo", input=1, output=1, error=1))
    async with session.peer:
        received = session.peer.received[session.streams["stdout"]]
        await session.peer.until(lambda: b"tick\n" in received)
        await session.send(b"hello\n")
        await session.peer.until(lambda: b"hello\n" in received)
        before = received[: received.index(b"hello\n")]
        assert not before.replace(b"tick\n", b"")


async def test_many_sessions_at_once(world: World) -> None:
    async def one(number: int) -> None:
        output, _, status = await run(world, "sh", "-c", f"cat; echo {number}", stdin=b"x" * 100_000)
        assert output == b"x" * 100_000 + f"{number}\n".encode()
        assert status["status"] == "Success"

    await asyncio.gather(*(one(number) for number in range(20)))


async def test_run_answers_the_output(world: World) -> None:
    async with aiohttp.ClientSession() as client:
        url = f"https://127.0.0.1:{world._port}/run/default/web-{NODE}/main"
        async with client.post(f"{url}?cmd=echo%20hi", ssl=trusting()) as answer:
            assert (answer.status, await answer.read()) == (200, b"hi\n")
        async with client.post(f"{url}?cmd=false", ssl=trusting()) as answer:
            assert (answer.status, await answer.text()) == (500, "command 'false' exited with 1: ")


async def test_a_protocol_the_runtime_does_not_know_is_refused_by_it(world: World) -> None:
    with pytest.raises(Refused) as refused:
        await SpdyPeer.connect(world._port, path("exec", "web", "true", output=1), "v9.channel.k8s.io", tls=trusting())
    assert refused.value.status == 403
    assert "X-Accepted-Stream-Protocol-Versions" in refused.value.head.title()


GET_INDEX = b"GET /index.html HTTP/1.0\r\n\r\n"


async def forward(peer: SpdyPeer, request: str) -> bytes:
    error = await peer.open(("streamType", "error"), ("port", "8080"), ("requestID", request))
    data = await peer.open(("streamType", "data"), ("port", "8080"), ("requestID", request))
    await peer.send(error, b"", fin=True)
    await peer.send(data, GET_INDEX, fin=True)
    answer = await peer.finished(data)
    assert await peer.finished(error) == b""
    return answer


async def test_a_port_is_forwarded_to_a_server_in_the_pod(world: World) -> None:
    async with await SpdyPeer.connect(world._port, path("portForward"), "portforward.k8s.io", tls=trusting()) as peer:
        for request in ("0", "1"):
            assert (await forward(peer, request)).endswith(b"hello from the pod\n")


async def test_a_port_is_forwarded_inside_a_websocket(world: World) -> None:
    url = f"wss://127.0.0.1:{world._port}{path('portForward')}"
    protocol = "SPDY/3.1+portforward.k8s.io"
    encoder, decoder = FrameEncoder(), FrameDecoder()
    answer = b""
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(url, ssl=trusting(), protocols=(protocol,)) as socket,
    ):
        assert socket.protocol == protocol
        for stream, kind in ((1, "error"), (3, "data")):
            headers = (("streamType", kind), ("port", "8080"), ("requestID", "0"))
            await socket.send_bytes(encoder.encode(SynStream(stream, headers)))
        await socket.send_bytes(encoder.encode(Data(3, GET_INDEX, fin=True)))
        async with asyncio.timeout(WAIT_SECONDS):
            while not answer.endswith(b"hello from the pod\n"):
                for frame in decoder.feed((await socket.receive()).data):
                    answer += frame.payload if isinstance(frame, Data) else b""


class V5Socket:
    """An exec over WebSocket v5."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def to_end(self) -> tuple[bytes, bytes, Any]:
        channels: dict[int, bytearray] = {1: bytearray(), 2: bytearray(), 3: bytearray()}
        async for message in self.socket:
            channels[message.data[0]] += message.data[1:]
        return bytes(channels[1]), bytes(channels[2]), json.loads(channels[3])


async def run_v5(world: World, *command: str, stdin: bytes | None = None, **flags: int) -> tuple[bytes, bytes, Any]:
    flags = {"output": 1, "error": 1, **({"input": 1} if stdin is not None else {}), **flags}
    url = f"wss://127.0.0.1:{world._port}{path('exec', 'web', *command, **flags)}"
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(url, ssl=trusting(), protocols=(V5,), max_msg_size=0) as socket,
    ):
        assert socket.protocol == V5
        reading = asyncio.create_task(V5Socket(socket).to_end())
        if stdin is not None:
            for start in range(0, len(stdin), 64 << 10):
                await socket.send_bytes(b"\0" + stdin[start : start + (64 << 10)])
            await socket.send_bytes(b"\xff\0")
        return await asyncio.wait_for(reading, WAIT)


async def test_websocket_v5(world: World) -> None:
    output, errors, status = await run_v5(world, "sh", "-c", "cat; echo err >&2; exit 7", stdin=b"in")
    assert (output, errors) == (b"in", b"err\n")
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]
    assert (await run_v5(world, "true"))[2] == {"metadata": {}, "status": "Success"}


async def test_websocket_v5_carries_fifty_mebibytes_in_and_out(world: World) -> None:
    content = os.urandom(MEBIBYTE) * 50
    output, _, status = await run_v5(world, "cat", stdin=content)
    assert status["status"] == "Success"
    assert hashlib.sha256(output).digest() == hashlib.sha256(content).digest()


@pytest.mark.beyond_docker(Limit.WEBSOCKET)
async def test_websocket_v4_is_the_runtimes_own(world: World) -> None:
    url = f"wss://127.0.0.1:{world._port}{path('exec', 'web', 'echo', 'hi', output=1)}"
    async with aiohttp.ClientSession() as client, client.ws_connect(url, ssl=trusting(), protocols=(V4,)) as socket:
        assert socket.protocol == V4
        assert (await V5Socket(socket).to_end())[0] == b"hi\n"


async def test_a_session_outlives_every_other_process(world: World) -> None:
    session = await Exec.start(world, path("exec", "web", "cat", input=1, output=1))
    async with session.peer:
        world.reset_start_counts()
        others = [service for service in SERVICES if service != "server"]
        pids = {service: world.kill(service) for service in others}
        await session.send(b"while they are away\n")
        stdout = session.streams["stdout"]
        await session.peer.until(lambda: session.peer.received[stdout] == b"while they are away\n")
        for service, pid in pids.items():
            await world.wait_back(service, pid)
        await session.send(b"after\n", fin=True)
        assert await session.out() == b"while they are away\nafter\n"
        assert (await session.status())["status"] == "Success"
