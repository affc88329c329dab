"""One GET over a connection of its own, HTTP/2 where TLS negotiates it; reads only the requested part of the body."""

import asyncio
import ssl
from collections.abc import Callable

from shared.http_get.dialing import abort, dial, reason
from shared.http_get.http2 import READ_BYTES, Exchange, ProtocolError, StreamRefusedError
from shared.http_get.received import AnswerError, AnswerReader
from shared.http_get.request import HttpTarget
from shared.http_get.response import MalformedAnswerError, ResponseHead


class BodyError(Exception):
    """The head of the answer came, and its body is incomplete or malformed; the text is Go's."""


def answered_in_plain_text(error: ssl.SSLError) -> bool:
    """Return whether the other side does not speak TLS."""
    return error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")


def go_error_text(error: Exception) -> str:
    """Return the reason of a failed exchange, as Go writes it after the URL."""
    if isinstance(error, ssl.SSLError):
        plain = answered_in_plain_text(error)
        return "http: server gave HTTP response to HTTPS client" if plain else f"tls: {error.reason or error}"
    return f"read tcp: {reason(error)}" if isinstance(error, OSError) else str(error)


async def exchange(target: HttpTarget, most: Callable[[ResponseHead], int]) -> tuple[ResponseHead, bytes]:
    """Send one request; return head and body. `most` returns how many bytes of the body to read, once the head is
    there. The caller sets the timeout. Raises DialError, AnswerError, MalformedAnswerError, ssl.SSLError, OSError;
    BodyError for any failure after the head."""
    reader, writer = await dial(target.host, target.port, tls=target.scheme == "https")
    try:
        tls = writer.get_extra_info("ssl_object")
        if target.prior_http2 if tls is None else tls.selected_alpn_protocol() == "h2":
            return await _exchange_http2(target, most, reader, writer)
        writer.write(target.request())
        answer = AnswerReader(reader)
        head = await answer.read_head()
        length, wanted = head.length, most(head)
        try:
            return head, await answer.read_body(length, wanted, chunked=head.chunked)
        except (AnswerError, MalformedAnswerError, OSError) as error:
            raise BodyError(go_error_text(error)) from None
    finally:
        abort(writer)


async def _exchange_http2(
    target: HttpTarget,
    most: Callable[[ResponseHead], int],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> tuple[ResponseHead, bytes]:
    talk = Exchange()
    wanted, problem = 0, ""
    try:
        writer.write(talk.open(target.fields()))
        while not talk.ended and not (talk.answered and len(talk.body) >= wanted):
            if not (data := await reader.read(READ_BYTES)):
                raise AnswerError("unexpected EOF")
            # After the end of TLS, frames that came before it are still read; each write would be a line in the log.
            if (reply := talk.receive(data)) and not writer.is_closing():
                writer.write(reply)
            if talk.answered:
                wanted = most(_http2_head(talk.headers))
            await asyncio.sleep(0)  # a read of what has arrived already lets no other task run
    except (ProtocolError, StreamRefusedError, AnswerError, OSError) as error:
        if not talk.answered:
            raise AnswerError(go_error_text(error)) from None
        problem = go_error_text(error)
    head = _http2_head(talk.headers)
    wanted = most(head)
    if problem and len(talk.body) < wanted:
        raise BodyError(problem)
    return head, bytes(talk.body[:wanted])


def _http2_head(headers: dict[str, str]) -> ResponseHead:
    status = headers.get(":status", "")
    if not (len(status) == 3 and status.isascii() and status.isdecimal()):
        raise AnswerError("malformed response from server: malformed non-numeric status pseudo header")
    return ResponseHead(int(status), headers)
