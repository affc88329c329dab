"""The events of a watch, one per line of any length; ends by itself when the server does not end the watch.

A watch that asks for bookmarks gets one about every minute. So one on which no byte comes for longer is taken for dead,
however alive its connection is: a proxy may keep that and drop what goes through it.
"""

import asyncio

import aiohttp

from shared.kube.answers import Answer, MalformedAnswerError, watch_event
from shared.kube.failures import BrokenStreamError, unreachable
from shared.kube.interface import ApiMalformedError, ApiUnansweredError, ApiUnreachableError, WatchEvent

MAX_SILENT_SECONDS = 150.0  # without a byte; two bookmarks are missing then
_MAX_LINE_BYTES = 64 * 2**20  # of one line; objects have at most 3 MiB


class WatchStream:
    """Iterates over the events of one watch until the server ends it. `ends_by`: seconds of the loop's clock at which a
    server that has not ended it is given up."""

    def __init__(self, stream: Answer, peer: str, ends_by: float) -> None:
        self._stream, self._peer, self._ends_by = stream, peer, ends_by  # ends_by by the loop's clock
        self._lines: list[bytes] = []  # complete ones, the next last
        self._begun: list[bytes] = []  # pieces of the line that has not ended yet
        self._length = 0

    def __aiter__(self) -> "WatchStream":
        return self

    async def __anext__(self) -> WatchEvent:
        """Return the next event. Raises ApiStatusError for an ERROR line, ApiUnreachableError for a broken stream."""
        while not self._lines:
            piece = await self._read()
            if not piece:
                if self._length:
                    raise ApiUnreachableError(f"{self._peer}: the connection broke within a watch event")
                raise StopAsyncIteration
            self._split(piece)
        try:
            return watch_event(self._lines.pop())
        except MalformedAnswerError as error:
            raise ApiMalformedError(f"{self._peer}: {error}") from None

    async def _read(self) -> bytes:
        silent_at = asyncio.get_running_loop().time() + MAX_SILENT_SECONDS
        try:
            async with asyncio.timeout_at(min(self._ends_by, silent_at)):
                return await self._stream.readany()
        except TimeoutError as error:
            if error.errno is not None:  # the kernel's
                raise unreachable(error, self._peer) from error
            seconds = (
                f"nothing came for {MAX_SILENT_SECONDS:.0f} s"
                if silent_at < self._ends_by
                else "it was not ended in time"
            )
            raise ApiUnansweredError(f"{self._peer}: the watch is silent: {seconds}") from None
        except (aiohttp.ClientError, BrokenStreamError, OSError) as error:
            raise unreachable(error, self._peer) from error

    def _split(self, piece: bytes) -> None:
        head, *rest = piece.split(b"\n")
        self._begun.append(head)
        self._length += len(head)
        if self._length > _MAX_LINE_BYTES:
            raise ApiMalformedError(f"{self._peer}: a watch event is longer than {_MAX_LINE_BYTES >> 20} MiB")
        if rest:
            lines = [b"".join(self._begun), *rest[:-1]]
            self._lines = [line for line in reversed(lines) if line.strip()]
            self._begun, self._length = [rest[-1]], len(rest[-1])
