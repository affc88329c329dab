"""Carries out httpGet probes: one GET over a new connection; of the body only the bytes that are shown are read."""

import asyncio

from services.pleg.core.probe_outcome import MAX_OUTPUT_BYTES, Outcome, text_of
from services.pleg.core.probe_spec import HttpHandler
from services.pleg.core.probe_worker import Verdict
from shared.http_get.dialing import DialError
from shared.http_get.exchange import BodyError, exchange, go_error_text
from shared.http_get.received import AnswerError
from shared.http_get.request import MAX_REDIRECTS, BadRequestError, redirected, target_of
from shared.http_get.response import MalformedAnswerError, ResponseHead

_AWAITING = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
_READING = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"


async def probe_http(handler: HttpHandler, host: str, port: int, timeout: float, user_agent: str) -> Outcome:
    """Send the GET and read the answer within `timeout` seconds, which include redirects to the same host. No answer is
    a failure; an answer whose body breaks off is Verdict.ERROR with any status, as in the kubelet."""
    url = f"{handler.scheme}://{host}:{port}{handler.path}"
    reading = False  # whether the head of the last answer has come

    def body_limit(head: ResponseHead) -> int:
        nonlocal reading
        reading = redirected(target, head.status, head.headers.get("location", "")) is None
        return MAX_OUTPUT_BYTES if reading else 0

    try:
        target = target_of(
            handler.scheme, host, port, handler.path, handler.headers, user_agent, prior_http2=handler.http2
        )
        url = target.url
        async with asyncio.timeout(timeout):
            for _ in range(MAX_REDIRECTS):
                url = target.url
                head, body = await exchange(target, body_limit)
                if (there := redirected(target, head.status, head.headers.get("location", ""))) is None:
                    return _outcome(head.status, text_of(body))
                target = there
        problem, url = f"stopped after {MAX_REDIRECTS} redirects", target.url
    except TimeoutError:
        if reading:
            return Outcome(Verdict.ERROR, _READING, state="failure")
        problem = _AWAITING
    except BodyError as error:
        return Outcome(Verdict.ERROR, str(error), state="failure")
    except (DialError, AnswerError, BadRequestError, MalformedAnswerError, OSError) as error:
        problem = go_error_text(error)
    return Outcome(Verdict.FAILURE, f'Get "{url}": {problem}')


def _outcome(status: int, body: str) -> Outcome:
    if 200 <= status < 300:
        return Outcome(Verdict.SUCCESS, body)
    if 300 <= status < 400:
        return Outcome(Verdict.WARNING, f"Probe terminated redirects, Response body: {body}")
    return Outcome(Verdict.FAILURE, f"HTTP probe failed with statuscode: {status}")
