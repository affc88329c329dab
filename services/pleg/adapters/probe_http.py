"""The httpGet probe: one GET, HTTP/1.1, a new connection each time, the body read as far as it is shown.

No HTTP library: what a probe needs is little, and this process is to stay small.
"""

import asyncio
import ssl

from services.pleg.adapters.dialing import DialError, dial, hang_up, reason
from services.pleg.core.http_request import MOST_REDIRECTS, BadRequestError, HttpTarget, redirected, target_of
from services.pleg.core.http_response import MalformedAnswerError, ResponseHead, chunk_size, parse_head
from services.pleg.core.probe_outcome import OUTPUT_BYTES, Outcome, text_of
from services.pleg.core.probe_spec import HttpHandler
from services.pleg.core.probe_worker import Verdict

_AWAITING = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
_READING = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"


class _AnswerError(Exception):
    """The connection stood, the answer did not come as it should; the text is Go's."""


async def probe_http(handler: HttpHandler, host: str, port: int, timeout: float) -> Outcome:
    """GET within `timeout` seconds, redirects to the same host and the body included."""
    url = f"{handler.scheme}://{host}:{port}{handler.path}"
    waiting = [_AWAITING]  # what a timeout now would be a timeout of
    try:
        target = target_of(handler.scheme, host, port, handler.path, handler.headers)
        url = target.url
        async with asyncio.timeout(timeout):
            for _ in range(MOST_REDIRECTS):
                waiting[0], url = _AWAITING, target.url
                head, body = await _get(target, waiting)
                if (there := redirected(target, head.status, head.headers.get("location", ""))) is None:
                    return _judge(head.status, text_of(body))
                target = there
        problem, url = f"stopped after {MOST_REDIRECTS} redirects", target.url
    except TimeoutError:
        problem = waiting[0]
        if problem == _READING:
            return Outcome(Verdict.FAILURE, problem)
    except ssl.SSLError as error:
        plain = error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
        problem = "http: server gave HTTP response to HTTPS client" if plain else f"tls: {error.reason or error}"
    except (DialError, _AnswerError, BadRequestError, MalformedAnswerError) as error:
        problem = str(error)
    except OSError as error:
        problem = f"read tcp: {reason(error)}"
    return Outcome(Verdict.FAILURE, f'Get "{url}": {problem}')


def _judge(status: int, body: str) -> Outcome:
    if 200 <= status < 300:
        return Outcome(Verdict.SUCCESS, body)
    if 300 <= status < 400:
        return Outcome(Verdict.WARNING, f"Probe terminated redirects, Response body: {body}")
    return Outcome(Verdict.FAILURE, f"HTTP probe failed with statuscode: {status}")


async def _get(target: HttpTarget, waiting: list[str]) -> tuple[ResponseHead, bytes]:
    """One request; of the body at most what is shown."""
    reader, writer = await dial(target.host, target.port, tls=target.scheme == "https")
    try:
        writer.write(target.request())
        head = await _head(reader)
        while head.informational:
            head = await _head(reader)
        waiting[0] = _READING
        return head, await _body(reader, head)
    finally:
        hang_up(writer)


async def _head(reader: asyncio.StreamReader) -> ResponseHead:
    lines = bytearray()
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if not lines and not error.partial:
                raise _AnswerError("EOF") from None
            if not lines and not error.partial.startswith(b"HTTP/1"):
                parse_head(bytes(error.partial))  # says that this is no HTTP
            raise _AnswerError("unexpected EOF") from None
        except asyncio.LimitOverrunError:
            raise _AnswerError("net/http: server response headers exceeded 65536 bytes; aborted") from None
        if not lines:
            parse_head(line)  # no need to wait for the rest of what is not HTTP
        if line in (b"\r\n", b"\n"):
            return parse_head(bytes(lines))
        lines += line
        if len(lines) > 65536:
            raise _AnswerError("net/http: server response headers exceeded 65536 bytes; aborted")


async def _body(reader: asyncio.StreamReader, head: ResponseHead) -> bytes:
    body = bytearray()
    if not head.chunked or head.length == 0:
        await _read(reader, body, head.length)
        return bytes(body)
    try:
        while len(body) < OUTPUT_BYTES and (size := chunk_size(await reader.readuntil(b"\n"))):
            await _read(reader, body, size)
            if len(body) < OUTPUT_BYTES:
                await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        raise _AnswerError("unexpected EOF") from None
    except asyncio.LimitOverrunError:
        raise _AnswerError("header line too long") from None
    return bytes(body)


async def _read(reader: asyncio.StreamReader, body: bytearray, length: int | None) -> None:
    """Add `length` bytes (None = what comes until the end), as far as they are shown."""
    room = OUTPUT_BYTES - len(body)
    left = room if length is None else min(length, room)
    while left > 0:
        data = await reader.read(left)
        if not data:
            if length is not None:
                raise _AnswerError("unexpected EOF")
            return
        body += data
        left -= len(data)
