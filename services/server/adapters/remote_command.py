"""Connects one exec or attach over a v5 WebSocket with the runtime's SPDY streams (server.md 13.1-13.3).

Back-pressure works both ways: a slow client holds back the command's output, and a command that does not read holds
back the client's input."""

import asyncio
import logging
from time import monotonic

from aiohttp import WSMsgType, web

from services.server.adapters.spdy_client import SpdyClient
from services.server.adapters.streaming_server import Backend
from services.server.core.streams.completion import completion, failure
from services.server.core.streams.stream_parameters import RequestedStreams
from shared.spdy.frames import Data, RstStream, SpdyProtocolError, SynReply

log = logging.getLogger(__name__)

_STDIN, _RESIZE, _CHANNELS = 0, 4, 5
_CLOSE = 0xFF  # the next byte is the channel that the client has finished with
MAX_IDLE_SECONDS = 4 * 3600.0  # without a message in either direction, pings aside; as the kubelet
_MAX_CREATE_SECONDS = 30.0  # for the runtime to accept the streams
_MAX_ERROR_BYTES = 1 << 20  # of the error stream
_WITHOUT_RESIZE = ("channel.k8s.io", "v2.channel.k8s.io")


class RemoteCommand:
    """A session between client and runtime. `protocol` is the sub-protocol that the runtime chose."""

    def __init__(
        self, socket: web.WebSocketResponse, backend: Backend, wanted: RequestedStreams, protocol: str
    ) -> None:
        self._socket, self._protocol = socket, protocol
        self._spdy = SpdyClient(backend)
        self._error_stream = self._spdy.open((("streamType", "error"),))
        self._stdin = self._open("stdin", asked=wanted.stdin)
        self._stdout = self._open("stdout", asked=wanted.stdout)
        self._stderr = self._open("stderr", asked=wanted.stderr)
        self._resize = self._open("resize", asked=wanted.tty and protocol not in _WITHOUT_RESIZE)
        opened = (self._error_stream, self._stdin, self._stdout, self._stderr, self._resize)
        self._unaccepted = {stream for stream in opened if stream}
        self._unfinished = {stream for stream in (self._error_stream, self._stdout, self._stderr) if stream}
        self._accepted = asyncio.Event()
        self._error = bytearray()
        self._moved = monotonic()  # the time of the last message in either direction

    async def run(self) -> bytes | None:
        """Serve the session to its end. Return the status document, or None when the client left first or nothing moved
        for long."""
        output = asyncio.create_task(self._copy_output(), name="output")
        client = asyncio.create_task(self._copy_input(), name="input")
        idle = asyncio.create_task(self._idle(), name="idle")
        pings = asyncio.create_task(self._spdy.keep_alive(), name="pings")
        try:
            await asyncio.wait({output, client, idle}, return_when=asyncio.FIRST_COMPLETED)
            return output.result() if output.done() else None
        finally:
            for task in (output, client, idle, pings):
                task.cancel()
            await asyncio.gather(output, client, idle, pings, return_exceptions=True)

    async def _idle(self) -> None:
        """Return once nothing has moved for IDLE seconds (server.md 13.2)."""
        while (left := self._moved + MAX_IDLE_SECONDS - monotonic()) > 0:
            await asyncio.sleep(left)

    def _open(self, name: str, *, asked: bool) -> int:
        return self._spdy.open((("streamType", name),)) if asked else 0

    async def _copy_output(self) -> bytes | None:
        """Copy from the runtime to the client, until every stream that ends has ended."""
        channels = {self._stdout: b"\x01", self._stderr: b"\x02"}
        try:
            async with asyncio.timeout(_MAX_CREATE_SECONDS) as timeout:
                async for frame in self._spdy.frames():
                    ended = False
                    match frame:
                        case SynReply():
                            self._unaccepted.discard(frame.stream)
                            ended = frame.fin
                            if not self._unaccepted:
                                self._accepted.set()
                                timeout.reschedule(None)
                        case Data():
                            ended = frame.fin
                            if frame.stream == self._error_stream:
                                self._error += frame.payload[: _MAX_ERROR_BYTES - len(self._error)]
                            elif frame.stream in channels and frame.payload:
                                self._moved = monotonic()
                                await self._socket.send_bytes(channels[frame.stream] + frame.payload)
                        case RstStream():
                            ended = True
                            self._forget(frame.stream)
                    if ended:
                        self._unfinished.discard(frame.stream)
                        if not self._unfinished:
                            return completion(self._protocol, bytes(self._error))
        except TimeoutError:
            return failure("timed out waiting for the runtime to accept the streams")
        except SpdyProtocolError as error:
            return failure(f"error reading from the runtime: {error}")
        except OSError as error:
            if self._socket.closed:
                return None
            log.debug("stream to the runtime: %s", error)
        if self._error:
            return completion(self._protocol, bytes(self._error))
        return failure("error reading from error stream: unexpected EOF")

    async def _copy_input(self) -> None:
        """Copy from the client to the runtime, until the client has left or breaks the protocol."""
        await self._accepted.wait()
        try:
            async for message in self._socket:
                if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
                    continue
                data = message.data.encode() if isinstance(message.data, str) else bytes(message.data)
                if not await self._handle_message(data):
                    return
        except (OSError, RuntimeError) as error:
            log.debug("input of a stream ended: %s", error)
            await asyncio.Event().wait()  # The runtime reads no more, but its last output is still to be sent.

    async def _handle_message(self, data: bytes) -> bool:
        """Handle one message of the client. Return False when it breaks the protocol."""
        self._moved = monotonic()
        channel = data[0] if data else None
        if channel == _CLOSE:
            if len(data) != 2 or data[1] >= _CHANNELS:
                return False
            if data[1] == _STDIN and self._stdin:
                await self._spdy.send(self._stdin, b"", fin=True)
                self._stdin = 0
            elif data[1] == _RESIZE:
                self._resize = 0
        elif channel == _STDIN and self._stdin and len(data) > 1:
            await self._spdy.send(self._stdin, data[1:])
        elif channel == _RESIZE and self._resize and len(data) > 1:
            await self._spdy.send(self._resize, data[1:])
        return True

    def _forget(self, stream: int) -> None:
        """Note that the runtime accepts no more data on this stream."""
        if stream == self._stdin:
            self._stdin = 0
        elif stream == self._resize:
            self._resize = 0
