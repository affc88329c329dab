"""Decodes what a request for exec, attach, run or portForward asks for, from its query and headers (server.md 12.1,
12.3)."""

import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from services.server.core.go_text import parse_query, quote

V5_PROTOCOL = "v5.channel.k8s.io"
TUNNEL_PREFIX, _TUNNEL_SUFFIX = "SPDY/3.1+", ".k8s.io"

_DIGITS = re.compile(r"[0-9]+")
_FLAGS = ("input", "output", "error", "tty")


class StreamRequestError(Exception):
    """The request cannot be served; `str()` is the kubelet's text, answered with 400."""


class Upgrade(StrEnum):
    """The protocol that the client requests for after the HTTP request."""

    NONE = "none"
    PROXY = "proxy"  # SPDY, or a WebSocket protocol that the runtime speaks itself
    TRANSLATE = "translate"  # WebSocket v5: the runtime does not know it
    TUNNEL = "tunnel"  # SPDY inside a WebSocket


class RequestedStreams(Struct, frozen=True):
    """The streams of one exec or attach."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    def with_tty(self, tty: bool) -> "RequestedStreams":
        """Return the same with or without a tty; one carries stderr in stdout."""
        return RequestedStreams(self.stdin, self.stdout, self.stderr and not tty, tty)


def requested_streams(query: str) -> RequestedStreams:
    """Return the streams a raw query selects; only `1` is true. Raises StreamRequestError when it selects none."""
    values = parse_query(query)
    stdin, stdout, stderr, tty = (values.get(name, [""])[0] == "1" for name in _FLAGS)
    streams = RequestedStreams(stdin, stdout, stderr).with_tty(tty)
    if not (streams.stdin or streams.stdout or streams.stderr):
        raise StreamRequestError("you must specify at least 1 of stdin, stdout, stderr")
    return streams


def command(query: str) -> tuple[str, ...]:
    """Return the words of an exec."""
    return tuple(parse_query(query).get("command", ()))


def run_command(query: str) -> tuple[str, ...]:
    """Return the words of a /run: `cmd` split at single spaces, without any quoting."""
    return tuple(parse_query(query).get("cmd", [""])[0].split(" "))


def forwarded_ports(query: str) -> tuple[int, ...]:
    """Return the ports of a WebSocket port-forward, which fixes them in its query. Raises StreamRequestError."""
    texts = parse_query(query).get("port")
    if not texts:
        raise StreamRequestError('query parameter "port" is required')
    ports = []
    for text in (part for value in texts for part in value.split(",")):
        if not text:
            raise StreamRequestError('query parameter "port" cannot be empty')
        if not _DIGITS.fullmatch(text):
            raise StreamRequestError(_unparsable(text, "invalid syntax"))
        if len(text.lstrip("0")) > 5 or int(text) > 65535:
            raise StreamRequestError(_unparsable(text, "value out of range"))
        if not int(text):
            raise StreamRequestError(f"port {quote(text)} must be > 0")
        ports.append(int(text))
    return tuple(ports)


def offered_protocols(headers: Iterable[str]) -> tuple[str, ...]:
    """Return the sub-protocols of all Sec-WebSocket-Protocol headers, in order."""
    return tuple(part.strip() for value in headers for part in value.split(",") if part.strip())


def is_websocket(connection: Iterable[str], upgrade: str) -> bool:
    """Return whether the Connection headers and the Upgrade header ask for a WebSocket."""
    return "upgrade" in ",".join(connection).lower() and upgrade.lower() == "websocket"


def upgrade_of(connection: Iterable[str], upgrade: str, protocols: Iterable[str], *, forward: bool) -> Upgrade:
    """Return the requested protocol; `protocols` are the WebSocket's, `forward` = the request is a portForward."""
    if "upgrade" not in ",".join(connection).lower() or not upgrade:
        return Upgrade.NONE
    if upgrade.lower() == "websocket":
        if forward and tunnelled_protocols(protocols):
            return Upgrade.TUNNEL
        if not forward and V5_PROTOCOL in protocols:
            return Upgrade.TRANSLATE
    return Upgrade.PROXY


def tunnelled_protocols(protocols: Iterable[str]) -> tuple[str, ...]:
    """Return the SPDY sub-protocols that the client offers to tunnel, without their wrapping."""
    return tuple(
        protocol[len(TUNNEL_PREFIX) :]
        for protocol in protocols
        if protocol.startswith(TUNNEL_PREFIX) and protocol.endswith(_TUNNEL_SUFFIX)
    )


def _unparsable(text: str, why: str) -> str:
    return f"unable to parse {quote(text)} as a port: strconv.ParseUint: parsing {quote(text)}: {why}"
