"""Encodes and decodes grpc.health.v1.Health/Check, with the kubelet's texts for its results (pods.md 10.3).
The two messages have one field each, so they need no generated code; `shared.http_get.http2` does HTTP/2.
"""

import struct
from urllib.parse import unquote

from services.pleg.core.probe_outcome import Outcome
from services.pleg.core.probe_worker import Verdict
from shared.http_get.http2 import Exchange, Headers

HEALTHY = "service healthy"
SERVING = 1
_STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_CODES = (
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
)
_OF_HTTP = {
    "400": "Internal",
    "401": "Unauthenticated",
    "403": "PermissionDenied",
    "404": "Unimplemented",
    "429": "Unavailable",
    "502": "Unavailable",
    "503": "Unavailable",
    "504": "Unavailable",
}
# gRPC's code for a stream that the server reset, by HTTP/2 error code.
_OF_RESET = {3: "ResourceExhausted", 7: "Unavailable", 8: "Canceled", 11: "ResourceExhausted", 12: "PermissionDenied"}


def request(address: str, service: str, left: float, user_agent: str, *, tls: bool = False) -> tuple[Headers, bytes]:
    """Return headers and body of the call for `service` ("" = the server); `left`: seconds until its deadline."""
    name = service.encode("utf-8", "replace")
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    headers: Headers = [
        (":method", "POST"),
        (":scheme", "https" if tls else "http"),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", address),
        ("content-type", "application/grpc"),
        ("user-agent", user_agent),
        ("te", "trailers"),
        ("grpc-timeout", f"{max(1, round(left * 1000))}m"),
    ]
    return headers, b"\0" + struct.pack(">I", len(message)) + message


def outcome_of(exchange: Exchange, within: str) -> Outcome:
    """Return the outcome of an exchange that has ended; `within`: the timeout as Go writes it."""
    code, message = _status(exchange)
    if code != "OK":
        return failed(code, message, within)
    body = bytes(exchange.body)
    if len(body) < 5 or body[0] != 0 or len(body) != 5 + int.from_bytes(body[1:5], "big"):
        return failed("Internal", "the answer is not one plain gRPC message", within)
    try:
        status = _health(body[5:])
    except ValueError:
        return failed("Internal", "grpc: failed to unmarshal the received message", within)
    if status == SERVING:
        return Outcome(Verdict.SUCCESS, HEALTHY)
    name = _STATUSES[status] if status < len(_STATUSES) else str(status)
    return Outcome(Verdict.FAILURE, f'service unhealthy (responded with "{name}")')


def failed(code: str, message: str, within: str) -> Outcome:
    """Return the outcome of a call that ended with this gRPC code ("Unavailable")."""
    if code == "Unimplemented":
        text = f"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
    elif code == "DeadlineExceeded":
        text = f"timeout: health rpc did not complete within {within}"
    else:
        text = f"error: health rpc probe failed: rpc error: code = {code} desc = {message}"
    return Outcome(Verdict.FAILURE, text)


def code_of_reset(number: int) -> str:
    """Return gRPC's name for an HTTP/2 error code."""
    return _OF_RESET.get(number, "Internal" if number <= 13 else "Unknown")


def _status(exchange: Exchange) -> tuple[str, str]:
    number = exchange.trailers.get("grpc-status", "")
    if number.isascii() and number.isdecimal() and len(number) < 9:
        code = int(number)
        message = unquote(exchange.trailers.get("grpc-message", ""), errors="replace")
        return (_CODES[code] if code < len(_CODES) else f"Code({code})"), message
    http = exchange.headers.get(":status", "")
    if http != "200":
        return _OF_HTTP.get(http, "Unknown"), f"unexpected HTTP status code received from server: {http[:9]}"
    return "Internal", "server closed the stream without sending trailers"


def _health(message: bytes) -> int:
    """Return field 1 of a HealthCheckResponse, 0 where it is absent; other fields are skipped. Raises ValueError."""
    status = at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        number = 0
        match tag & 7:
            case 0:
                number, at = _read_varint(message, at)
            case 1:
                at += 8
            case 2:
                length, at = _read_varint(message, at)
                at += length
            case 5:
                at += 4
            case _:
                raise ValueError("wire type")
        if tag == 8:
            status = number
    if at > len(message):
        raise ValueError("cut short")
    return status


def _varint(number: int) -> bytes:
    coded = bytearray()
    while number > 127:
        coded.append(number & 127 | 128)
        number >>= 7
    coded.append(number)
    return bytes(coded)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        number |= (message[at] & 127) << shift
        at += 1
        if message[at - 1] < 128:
            return number, at
    raise ValueError("cut short")
