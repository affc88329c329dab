"""Reads the head and the body of one HTTP/1 answer, of which the server may have any size and shape.

The limits are those of Go's client, but for the heads: all of one request, interim ones included, have 64 KiB together,
where Go permits 10 MiB. So no server makes the event loop parse more than that before another task runs.
"""

import asyncio
import re

from shared.http_get.response import MalformedAnswerError, ResponseHead, chunk_size, parse_head

MAX_HEAD_BYTES = 64 * 1024  # of all heads of one answer, with interim ones (1xx)
MAX_CHUNK_LINE_BYTES = 4096
MAX_CHUNK_EXCESS_BYTES = 16 * 1024  # of chunk lines beyond 16 bytes and twice its data for each chunk
_READ_BYTES = 16 * 1024
_HEAD_END = re.compile(rb"\n\r?\n")


class AnswerError(Exception):
    """The connection was opened, and no valid answer came; the text is Go's."""


class AnswerReader:
    """Reads one answer: first `read_head`, then `read_body`. The caller sets the timeout."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._received = bytearray()  # and not parsed yet
        self._head_bytes = 0  # of the heads parsed so far

    async def read_head(self) -> ResponseHead:
        """Return the final head; interim ones are skipped. Raises AnswerError, MalformedAnswerError, OSError."""
        while (head := await self._read_one_head()).informational:
            pass
        return head

    async def read_body(self, length: int | None, most: int, *, chunked: bool) -> bytes:
        """Return the body of `length` bytes (None = up to the end of the connection), of a longer one the first `most`.
        Raises AnswerError, MalformedAnswerError, OSError."""
        body = bytearray()
        if chunked and length != 0:
            await self._read_chunks(body, most)
        else:
            await self._read_data(body, length, most)
        return bytes(body)

    async def _read_one_head(self) -> ResponseHead:
        received, searched, begun = self._received, 0, False
        while not (end := _HEAD_END.search(received, max(0, searched - 2))):
            if self._head_bytes + len(received) > MAX_HEAD_BYTES:
                raise _heads_too_long()
            if not begun and b"\n" in received:  # no need to wait for the rest of what is not HTTP
                parse_head(bytes(received[: received.index(b"\n") + 1]))
                begun = True
            searched = len(received)
            if not await self._receive():
                if not received:
                    raise AnswerError("EOF")
                if not begun and not received.startswith(b"HTTP/1"):
                    parse_head(bytes(received))  # raises: this is no HTTP
                raise AnswerError("unexpected EOF")
        self._head_bytes += end.end()
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _heads_too_long()
        return parse_head(self._take(end.end()))

    async def _read_chunks(self, body: bytearray, most: int) -> None:
        excess = 0
        while len(body) < most:
            line = await self._read_line()
            size = chunk_size(line)
            if not size:
                return
            excess = max(0, excess + len(line) + 2 - 16 - 2 * size)
            if excess > MAX_CHUNK_EXCESS_BYTES:
                raise AnswerError("chunked encoding contains too much non-data")
            await self._read_data(body, size, most)
            if len(body) < most and (await self._read_line()).strip():
                raise MalformedAnswerError("malformed chunked encoding")

    async def _read_line(self) -> bytes:
        searched = 0
        while (end := self._received.find(b"\n", searched, MAX_CHUNK_LINE_BYTES)) < 0:
            searched = len(self._received)
            if searched >= MAX_CHUNK_LINE_BYTES:
                raise AnswerError("header line too long")
            if not await self._receive():
                raise AnswerError("unexpected EOF")
        return self._take(end + 1)

    async def _read_data(self, body: bytearray, length: int | None, most: int) -> None:
        """Append `length` bytes (None = up to the end of the connection) to `body`, until it has `most`."""
        room = most - len(body)
        left = room if length is None else min(length, room)
        while left > 0:
            if not self._received and not await self._receive():
                if length is not None:
                    raise AnswerError("unexpected EOF")
                return
            data = self._take(left)
            body += data
            left -= len(data)

    async def _receive(self) -> bool:
        """Append what the server sent; return whether there was anything before the connection's end."""
        data = await self._reader.read(_READ_BYTES)
        self._received += data
        return bool(data)

    def _take(self, most: int) -> bytes:
        data = bytes(self._received[:most])
        del self._received[:most]
        return data


def _heads_too_long() -> AnswerError:
    return AnswerError(f"net/http: server response headers exceeded {MAX_HEAD_BYTES} bytes; aborted")
