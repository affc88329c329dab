"""Exec sessions that are held open while processes are killed: `cat` in a pod, and a heartbeat that it echoes."""

import asyncio
import contextlib
import ssl
from typing import Self

import aiohttp

_BEAT = 0.5  # seconds between two lines sent
_STDIN, _STDOUT = b"\0", 1


class Session:
    """One `cat` behind a WebSocket. It is lost once the connection ends or an echo stays away."""

    def __init__(self, client: aiohttp.ClientSession, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self._client, self._socket = client, socket
        self._sent, self._received, self._text = 0, asyncio.Condition(), b""
        self._ended = False
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._beat())]

    @classmethod
    async def open(cls, url: str, trust: ssl.SSLContext) -> Self:
        """Open it at a kubelet's or an API server's exec URL and wait for the first echo."""
        client = aiohttp.ClientSession()
        try:
            socket = await client.ws_connect(url, ssl=trust, protocols=("v4.channel.k8s.io",), autoping=True)
        except BaseException:
            await client.close()
            raise
        session = cls(client, socket)
        if not await session.answers(60.0):
            await session.close()
            raise AssertionError(f"no echo from {url.partition('?')[0]}")
        return session

    async def answers(self, seconds: float) -> bool:
        """Whether a line sent now comes back in time; False at once when the session has ended."""
        try:
            line = await self._send()
            async with asyncio.timeout(seconds), self._received:
                await self._received.wait_for(lambda: self._ended or line in self._text)
        except (TimeoutError, ConnectionError, aiohttp.ClientError):
            return False
        return not self._ended

    async def close(self) -> None:
        """End it, lost or not."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._socket.close()
        await self._client.close()

    async def _send(self) -> bytes:
        self._sent += 1
        line = f"beat {self._sent}\n".encode()
        await self._socket.send_bytes(_STDIN + line)
        return line

    async def _beat(self) -> None:
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            while not self._ended:
                await self._send()
                await asyncio.sleep(_BEAT)

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == bytes([_STDOUT]):
                async with self._received:
                    self._text = (self._text + message.data[1:])[-4096:]
                    self._received.notify_all()
        async with self._received:
            self._ended = True
            self._received.notify_all()


def trust_of(pair: tuple[object, object]) -> ssl.SSLContext:
    """TLS with this client certificate and key that trusts whatever loopback shows."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(str(pair[0]), str(pair[1]))
    return context
