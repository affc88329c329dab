"""Docker's streams of an exec or attach: a connection that leaves HTTP and carries input and framed output.

aiodocker has such streams too, but cannot end the input while the output goes on, which a command that reads its input
to the end waits for.
"""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType

from services.dockershim.core.errors import CallError

_HEADER = struct.Struct(">BxxxL")
_CHUNK_BYTES = 64 * 1024
_MAX_HEAD_BYTES = 64 * 1024
_MAX_ERROR_BYTES = 4096
_OPEN_SECONDS = 60.0
STDOUT, STDERR = 1, 2


class Hijacked:
    """The streams of one request. Enter the context manager to open them: a command starts then. `tty`: the output is
    not framed. Raises CallError where Docker refuses."""

    def __init__(self, socket: str, path: str, body: object, *, tty: bool) -> None:
        self._socket, self._path, self._body, self._tty = socket, path, body, tty
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "Hijacked":
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await self._open()
        except TimeoutError:
            raise CallError("DeadlineExceeded", f"Docker at {self._socket} did not open the streams in time") from None
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise CallError("Unavailable", f"Docker at {self._socket} cannot be reached: {error}") from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield pieces of the output, each with STDOUT or STDERR, until Docker ends it."""
        assert self._reader is not None
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                if self._tty:
                    if not (data := await self._reader.read(_CHUNK_BYTES)):
                        return
                    yield STDOUT, data
                    continue
                stream, length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
                while length:
                    if not (data := await self._reader.read(min(length, _CHUNK_BYTES))):
                        return
                    length -= len(data)
                    yield stream, data

    async def send(self, data: bytes) -> None:
        """Write input; wait while the command takes none. Raises OSError."""
        assert self._writer is not None
        self._writer.write(data)
        await self._writer.drain()

    def end_input(self) -> None:
        """End the input; the output goes on."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.write_eof()

    async def _open(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=_MAX_HEAD_BYTES)
        self._reader, self._writer = reader, writer
        body = json.dumps(self._body).encode()
        writer.write(
            f"POST {self._path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = [*head.split(" ", 2), ""][1]
        if status not in ("101", "200"):
            text = (await reader.read(_MAX_ERROR_BYTES)).decode("utf-8", "replace")
            writer.close()
            with suppress(ValueError, KeyError, TypeError):
                text = json.loads(text)["message"]
            code = {"404": "NotFound", "409": "FailedPrecondition"}.get(status, "Unknown")
            raise CallError(code, text.strip())
