"""Sends requests of an administrator that read a log or run a command, through the API server or at a kubelet's
port."""

import json
import ssl
from types import TracebackType
from typing import Self

import aiohttp

from bench.errors import BenchError
from tests.support.clusters.control_plane import ControlPlane

_PROTOCOL = "v4.channel.k8s.io"
_PODS = "/api/v1/namespaces/default/pods"
_CONTAINER = "main"
_STDIN, _STDOUT, _ERROR = 0, 1, 3
TIMEOUT_SECONDS = 30.0


class Through:
    """`async with Through(plane) as api:` is a client of the API server; with `port`, of the kubelet there."""

    def __init__(self, plane: ControlPlane, port: int | None = None) -> None:
        context = ssl.create_default_context(cafile=str(plane.ca_file))
        if port is not None:  # the serving certificate of a kubelet is self-signed
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(*plane.kubelet_client_pair)  # its group is system:masters
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_SECONDS, sock_read=TIMEOUT_SECONDS)
        url = plane.url if port is None else f"https://127.0.0.1:{port}"
        self._at_port = port is not None
        self._session = aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(ssl=context), timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, path: str) -> int:
        """GET the path and read the answer; return its status."""
        async with self._session.get(path) as answer:
            await answer.read()
            return answer.status

    async def log_bytes(self, pod: str) -> int:
        """Read the pod's log; return its length in bytes."""
        read = 0
        path = f"/containerLogs/default/{pod}/{_CONTAINER}" if self._at_port else f"{_PODS}/{pod}/log"
        async with self._session.get(path) as answer:
            if answer.status != 200:
                raise BenchError(f"the log of {pod} answers {answer.status}: {(await answer.text())[:200]}")
            async for chunk in answer.content.iter_any():
                read += len(chunk)
        return read

    async def exec(self, pod: str, *command: str, stdin: bool = False) -> "Command":
        """Start the command in the pod's container."""
        names = ("input", "output") if self._at_port else ("stdin", "stdout")
        query = [*(("command", word) for word in command), *((name, "1") for name in names[0 if stdin else 1 :])]
        path = f"/exec/default/{pod}/{_CONTAINER}" if self._at_port else f"{_PODS}/{pod}/exec"
        try:
            socket = await self._session.ws_connect(path, params=query, protocols=(_PROTOCOL,), max_msg_size=0)
        except aiohttp.ClientError as error:
            raise BenchError(f"exec in {pod}: {error}") from error
        return Command(socket)


class Command:
    """A command in a container with its streams in one WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def succeeded(self) -> bool:
        """Read to the end. Return whether the command succeeded."""
        status = b""
        async for message in self._socket:
            if isinstance(message.data, bytes) and message.data[:1] == bytes([_ERROR]):
                status += message.data[1:]
        return bool(status) and json.loads(status).get("status") == "Success"

    async def echoes(self, line: bytes, seconds: float = 5.0) -> bool:
        """Return whether a line sent to the session comes back. The command must be `cat`."""
        wanted, got = line + b"\n", b""
        try:
            await self._socket.send_bytes(bytes([_STDIN]) + wanted)
            while wanted not in got:
                data = await self._socket.receive_bytes(timeout=seconds)
                got += data[1:] if data[:1] == bytes([_STDOUT]) else b""
        except (TimeoutError, TypeError, OSError, aiohttp.ClientError):  # the session is closed
            return False
        return True

    async def close(self) -> None:
        """Close the session."""
        await self._socket.close()
