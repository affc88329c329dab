"""Decodes answers of the API server: objects, Status bodies, lines of a watch, Retry-After. Pure."""

from typing import Any, Protocol

import orjson

from shared.kube.interface import ApiStatusError, WatchEvent
from shared.model.objects import Object

_MAX_TEXT_CHARACTERS = 300  # of a body that is no Status which are worth showing
_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    406: "NotAcceptable", 409: "Conflict", 410: "Gone", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType",
    422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


class MalformedAnswerError(Exception):
    """The answer is no JSON object; the text describes it, without quoting it."""


class Answer(Protocol):
    """An answer: its head and, still to be read, its body. `status`: the HTTP code; `retry_after`: the raw header."""

    @property
    def status(self) -> int: ...

    @property
    def retry_after(self) -> str | None: ...

    async def readany(self) -> bytes:
        """Return received body bytes, at least one; b"" at its end. Raises aiohttp.ClientError, BrokenStreamError,
        OSError."""
        ...

    def close(self) -> None:
        """Drop the rest of the body."""
        ...


def decode_object(body: bytes) -> Object:
    """Return the object of a successful answer. Raises MalformedAnswerError."""
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise MalformedAnswerError("the answer is not JSON") from None
    if not isinstance(decoded, dict):
        raise MalformedAnswerError("the answer is not a JSON object")
    return decoded


def status_error(code: int, body: bytes, retry_after: float | None = None) -> ApiStatusError:
    """Return the error for an answer with this HTTP code (300 and above); `retry_after`: seconds, from the header."""
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        decoded = None
    if isinstance(decoded, dict) and decoded.get("kind") == "Status":
        return error_of_status(decoded, code, retry_after)
    text = " ".join(body[: 4 * _MAX_TEXT_CHARACTERS].decode("utf-8", "replace").split())[:_MAX_TEXT_CHARACTERS]
    reason = _REASONS.get(code, "Unknown")
    what = f"the server answered with {code} {reason}"
    return ApiStatusError(code, reason, f"{what}: {text}" if text else what, retry_after=retry_after)


def error_of_status(status: Object, code: int = 0, retry_after: float | None = None) -> ApiStatusError:
    """Return the error for a Status object; `code` is used where the object has none."""
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
    """Return the seconds of a Retry-After header; None without one, or where it is a date."""
    text = (header or "").strip()
    return float(text) if text.isdecimal() and len(text) <= 6 else None


def watch_event(line: bytes) -> WatchEvent:
    """Decode one line of a watch. Raises ApiStatusError for an ERROR line, MalformedAnswerError for no event."""
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
    return WatchEvent(kind, found, len(line))
