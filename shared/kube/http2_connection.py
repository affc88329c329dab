"""One HTTP/2 connection to the API server at work: its socket, the answers on its streams, and pings when it is silent.

Each answer has one reader. What a reader has not taken is bounded by the stream's window.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from shared.kube.failures import BrokenStreamError
from shared.kube.http2_session import AnswerData, AnswerHead, Change, Http2Error, Http2Session, StreamBroken, StreamEnd

# As client-go: a connection on which nothing comes for so long is pinged, and closed when still nothing comes.
PING_AFTER_SECONDS = 30.0
MAX_PONG_SECONDS = 15.0
_MAX_UNSENT_BYTES = 2**20  # a server that makes us answer and does not read is left
_CLOSED = "the connection was closed before an answer came"
_BROKE = "the connection broke within an answer"


class StreamAnswer:
    """The answer to one request (`shared.kube.answers.Answer`), as it comes. `close` it."""

    def __init__(self, connection: "Http2Connection") -> None:
        self.number = 0
        self.status = 0  # 0 = the head has not come
        self.retry_after: str | None = None
        self._connection = connection
        self._pieces: list[bytes] = []
        self._unread = 0  # bytes of the window that the pieces take
        self._is_over = False
        self._error: BrokenStreamError | None = None
        self._changed: asyncio.Future[None] | None = None

    async def head(self) -> None:
        """Wait for the head. Raises BrokenStreamError."""
        while not self.status:
            await self._change()

    async def readany(self) -> bytes:
        """Return the bytes since the last call, at least one; b"" at the end. Raises BrokenStreamError."""
        while not self._pieces:
            if self._is_over and self._error is None:
                return b""
            await self._change()
        data = b"".join(self._pieces)
        self._release()
        return data

    def close(self) -> None:
        """Drop the rest of the answer; an open stream is reset."""
        self._connection.forget(self.number)
        self._release()

    def take(self, change: Change) -> None:
        """Take an event of the stream."""
        match change:
            case AnswerHead(_, status, retry_after):
                self.status, self.retry_after = status, retry_after
            case AnswerData(_, data, size):
                self._pieces.append(data)
                self._unread += size
            case StreamEnd():
                self._is_over = True
            case StreamBroken(_, reason, again, refused):
                self._is_over, self._error = True, BrokenStreamError(reason, again=again, is_outage=not refused)
        self._wake()

    def fail(self, error: BrokenStreamError | None, *, silent: bool) -> None:
        """Take in that the connection is lost. The request may be sent again where no head has come."""
        if not self._is_over:
            reason = str(error) if error is not None else _BROKE if self.status else _CLOSED
            self._is_over, self._error = True, BrokenStreamError(reason, again=not self.status, is_outage=not silent)
            self._wake()

    async def _change(self) -> None:
        if self._error is not None:
            raise self._error
        self._changed = asyncio.get_running_loop().create_future()
        try:
            await self._changed
        finally:
            self._changed = None

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _release(self) -> None:
        unread, self._unread = self._unread, 0
        self._pieces.clear()
        self._connection.release(self.number, unread)


class Http2Connection(asyncio.Protocol):
    """`on_end` is called once, when the connection can be forgotten."""

    def __init__(self, on_end: Callable[["Http2Connection"], None]) -> None:
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._session = Http2Session()
        self._answers: dict[int, StreamAnswer] = {}
        self._received_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.speaks_http2 = False  # TLS agreed on it
        # Done once requests may be sent, or the server speaks no HTTP/2; else what went wrong.
        self.ready: asyncio.Future[None] = self._loop.create_future()

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent now."""
        return not self._ended and self._session.has_room

    @property
    def permitted(self) -> int:
        """The number of streams that the server permits at once."""
        return self._session.permitted

    def request(self, fields: Sequence[tuple[str, str]]) -> StreamAnswer:
        """Send a request with these header fields. Requires `has_room`. Raises BrokenStreamError."""
        answer = StreamAnswer(self)
        try:
            answer.number = self._session.open(fields)
        except Http2Error as error:
            raise BrokenStreamError(f"HTTP/2 failed: {error}", again=False) from None
        self._answers[answer.number] = answer
        self._send()
        return answer

    def release(self, number: int, size: int) -> None:
        """Take in that a reader has taken `size` bytes of stream `number`, so that the server may send more."""
        if size and not self._ended:
            self._session.release(number, size)
            self._send()

    def forget(self, number: int) -> None:
        """Drop stream `number`, of which its reader needs no more."""
        if self._answers.pop(number, None) is not None and not self._ended:
            self._session.reset(number)
            self._send()
            self._end_drained()

    def close(self) -> None:
        """Close the connection; unfinished answers raise BrokenStreamError."""
        self._end(BrokenStreamError("the connection was closed", again=False))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        tls = transport.get_extra_info("ssl_object")
        self.speaks_http2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        if not self.speaks_http2:
            self._set_ready()
            return
        self._received_at = self._loop.time()
        self._timer = self._loop.call_later(PING_AFTER_SECONDS, self._ping)
        self._send()

    def data_received(self, data: bytes) -> None:
        if self._ended or not self.speaks_http2:
            return
        self._received_at = self._loop.time()
        try:
            for change in self._session.receive(data):
                if (answer := self._answers.get(change.stream)) is not None:
                    answer.take(change)
        except Http2Error as error:
            self._send()
            self._end(BrokenStreamError(f"the answer is not HTTP/2: {error}", again=False))
            return
        self._send()
        if self._session.ready:
            self._set_ready()
        self._end_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _send(self) -> None:
        if self._transport is None or not (data := self._session.data_to_send()):
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            self._end(BrokenStreamError("the server does not read what it is sent", again=False))

    def _ping(self) -> None:
        """Nothing may have come for a while."""
        quiet_from = self._received_at + PING_AFTER_SECONDS
        if self._loop.time() < quiet_from:
            self._timer = self._loop.call_at(quiet_from, self._ping)
        elif not self._answers:
            self._end(None)  # it is not used either
        else:
            self._session.ping()
            self._send()
            self._timer = self._loop.call_later(MAX_PONG_SECONDS, self._check_silence, self._loop.time())

    def _check_silence(self, pinged_at: float) -> None:
        if self._received_at >= pinged_at:
            self._ping()
            return
        text = f"the connection is silent: no answer to a ping within {MAX_PONG_SECONDS:.0f} s"
        self._end(BrokenStreamError(text, again=False), silent=True)

    def _end_drained(self) -> None:
        if self._session.draining and not self._answers:
            self._end(None)

    def _set_ready(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def _end(self, error: Exception | None, *, silent: bool = False) -> None:
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if not self.ready.done():
            self.ready.set_exception(error or BrokenStreamError(_CLOSED, again=False))
            self.ready.exception()  # perhaps no dial waits for it any more
        answers, self._answers = self._answers, {}
        broken = error if isinstance(error, BrokenStreamError) else _lost(error)
        for answer in answers.values():
            answer.fail(broken, silent=silent)
        if self._transport is not None:
            self._transport.abort()
        self._on_end(self)


def _lost(error: Exception | None) -> BrokenStreamError | None:
    if error is None:
        return None
    text = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return BrokenStreamError(f"the connection broke: {text}", again=True)
