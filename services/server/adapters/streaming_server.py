"""Opens upgraded connections to the runtime's streaming server and reads its refusals (server.md 12.3)."""

import asyncio

from msgspec import Struct

from services.server.core.streams import upgrade
from services.server.core.streams.upgrade import ResponseHead, StreamingServer, UpgradeError

MAX_DIAL_SECONDS = 30.0  # until the runtime accepts the connection, and again until it answers
_MAX_REFUSAL_SECONDS = 10.0  # for the body of an answer that is no upgrade
_MAX_REFUSAL_BYTES = 1 << 20  # of the body of such an answer
BUFFER_BYTES = 128 << 10  # asyncio stops reading at twice that
CHUNK_BYTES = 256 << 10  # copied at a time


class Backend(Struct, frozen=True):
    """A connection on which the runtime has answered; `raw_head` has the bytes of its answer."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: ResponseHead
    raw_head: bytes

    @property
    def upgraded(self) -> bool:
        """Whether the runtime accepted the upgrade."""
        return self.head.status == 101

    async def refusal(self) -> bytes:
        """Return the body of an answer that is no upgrade, as far as it arrives in time; a chunked body is decoded."""
        chunked = "chunked" in self.head.get("Transfer-Encoding").lower()
        wanted = _MAX_REFUSAL_BYTES if self.head.length is None else min(self.head.length, _MAX_REFUSAL_BYTES)
        body = b""
        try:
            async with asyncio.timeout(_MAX_REFUSAL_SECONDS):
                while len(body) < wanted and not (chunked and body.endswith(b"0\r\n\r\n")):
                    part = await self.reader.read(wanted - len(body))
                    if not part:
                        break
                    body += part
        except (TimeoutError, OSError):
            pass
        return upgrade.decode_chunked(body) if chunked else body

    async def close(self) -> None:
        """Close the connection after what is written has been sent."""
        self.writer.close()
        try:
            async with asyncio.timeout(1):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            self.writer.transport.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self.writer.transport.abort()


async def connect(server: StreamingServer, request: bytes) -> Backend:
    """Send an upgrade request and read the head of the answer. Raises UpgradeError."""
    where = f"dial tcp {server.host}:{server.port}"
    try:
        async with asyncio.timeout(MAX_DIAL_SECONDS):
            reader, writer = await asyncio.open_connection(
                server.host, server.port, limit=BUFFER_BYTES, ssl=True if server.tls else None
            )
    except TimeoutError as error:
        raise UpgradeError(f"error dialing backend: {where}: i/o timeout") from error
    except OSError as error:
        raise UpgradeError(f"error dialing backend: {where}: {_why(error)}") from error
    try:
        writer.write(request)
        async with asyncio.timeout(MAX_DIAL_SECONDS):
            await writer.drain()
            raw_head = await reader.readuntil(b"\r\n\r\n")
        return Backend(reader, writer, upgrade.parse_response_head(raw_head), raw_head)
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, TimeoutError) as error:
        writer.transport.abort()
        raise UpgradeError(f"error sending request: {_why(error)}") from error
    except BaseException:
        writer.transport.abort()
        raise


def _why(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connect: connection refused"
    if isinstance(error, TimeoutError):
        return "timeout awaiting response headers"
    if isinstance(error, EOFError):
        return "EOF"
    return " ".join(str(error).split()) or type(error).__name__
