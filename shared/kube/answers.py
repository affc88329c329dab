"""What the API server's answers mean: Status bodies, lines of a watch, Retry-After. Pure."""

from typing import Any, Protocol

import orjson

from shared.kube.interface import ApiStatusError, WatchEvent
from shared.model.objects import Object

_TEXT = 300  # characters of a body that is no Status which are worth showing
_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    406: "NotAcceptable", 409: "Conflict", 410: "Gone", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType",
    422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


class MalformedAnswerError(Exception):
    """What came is no JSON object; the text describes it, without quoting it."""


class Answer(Protocol):
    """The head of an answer and the body behind it. `status`: HTTP's code; `retry_after`: that header as it is."""

    @property
    def status(self) -> int: ...

    @property
    def retry_after(self) -> str | None: ...

    async def readany(self) -> bytes:
        """What came of the body, at least one byte; b"" at its end. Raises aiohttp.ClientError, BrokenStreamError,
        OSError."""
        ...

    def close(self) -> None:
        """No more of it is needed."""
        ...


def decode_object(body: bytes) -> Object:
    """The object of a successful answer. Raises MalformedAnswerError."""
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise MalformedAnswerError("the answer is not JSON") from None
    if not isinstance(decoded, dict):
        raise MalformedAnswerError("the answer is not a JSON object")
    return decoded


def status_error(code: int, body: bytes, retry_after: float | None = None) -> ApiStatusError:
    """The error that an answer with such an HTTP code means; `retry_after` is the header's, in seconds."""
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        decoded = None
    if isinstance(decoded, dict) and decoded.get("kind") == "Status":
        return error_of_status(decoded, code, retry_after)
    text = " ".join(body[: 4 * _TEXT].decode("utf-8", "replace").split())[:_TEXT]
    reason = _REASONS.get(code, "Unknown")
    what = f"the server answered with {code} {reason}"
    return ApiStatusError(code, reason, f"{what}: {text}" if text else what, retry_after=retry_after)


def error_of_status(status: Object, code: int = 0, retry_after: float | None = None) -> ApiStatusError:
    """The error that a Status object holds; `code` where it names none."""
    found = status.get("code")
    number = found if isinstance(found, int) and not isinstance(found, bool) and found else (code or 500)
    raw = status.get("details")
    details: dict[str, Any] = raw if isinstance(raw, dict) else {}
    seconds = details.get("retryAfterSeconds")
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds > 0 and retry_after is None:
        retry_after = float(seconds)
    reason = str(status.get("reason") or _REASONS.get(number, "Unknown"))
    message = str(status.get("message") or f"the server answered with {number} {reason}")
    return ApiStatusError(number, reason, " ".join(message.split()), details=details, retry_after=retry_after)


def retry_after_seconds(header: str | None) -> float | None:
    """A Retry-After header in seconds; None where there is none, or a date."""
    text = (header or "").strip()
    return float(text) if text.isdecimal() and len(text) <= 6 else None


def watch_event(line: bytes) -> WatchEvent:
    """One line of a watch. Raises ApiStatusError for an ERROR line, MalformedAnswerError for one that is no event."""
    try:
        decoded = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise MalformedAnswerError("a line of the watch is not JSON") from None
    kind = decoded.get("type") if isinstance(decoded, dict) else None
    found = decoded.get("object") if isinstance(decoded, dict) else None
    if not isinstance(kind, str) or not isinstance(found, dict):
        raise MalformedAnswerError("a line of the watch is not a watch event")
    if kind == "ERROR":
        raise error_of_status(found)
    return WatchEvent(kind, found)
