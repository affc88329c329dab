"""The HTTP heads of an upgraded connection to the runtime's streaming server (server.md 12.3). Sends nothing."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from services.server.core.access.bearer import without_token
from services.server.core.streams.stream_parameters import V5_PROTOCOL

# Client-side preference, newest first (server.md 13.1); v5 differs from v4 only for WebSockets.
REMOTE_COMMAND_PROTOCOLS = (
    V5_PROTOCOL,
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
)

RawHeaders = Iterable[tuple[bytes, bytes]]


class UpgradeError(Exception):
    """The runtime's streaming server cannot be used; `str()` is the kubelet's text, answered with 500."""


class StreamingServer(Struct, frozen=True):
    """Where a CRI URL points."""

    host: str
    port: int
    tls: bool
    target: str  # path and query
    authority: str  # as a Host header has it


class ResponseHead(Struct, frozen=True):
    """Status and headers of an answer."""

    status: int
    headers: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """Return the first header of that name, "" when absent."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    @property
    def length(self) -> int | None:
        """Bytes of the body, None = until the connection ends."""
        text = self.get("Content-Length")
        return int(text) if text.isascii() and text.isdigit() else None


def parse_streaming_url(url: str) -> StreamingServer:
    """Take the runtime's URL apart. Raises UpgradeError."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise UpgradeError(f"error dialing backend: the runtime's URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UpgradeError(f"error dialing backend: the runtime's URL has no http scheme or no host: {url!r}")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return StreamingServer(parts.hostname, port, parts.scheme == "https", target, parts.netloc)


def proxied_request(method: str, server: StreamingServer, headers: RawHeaders, client: str) -> bytes:
    """Return the client's request for the runtime, with its headers as they came; the client's address is added, and
    its token removed, which the runtime has no right to see.
    """
    lines = [f"{method} {server.target} HTTP/1.1".encode("ascii")]
    forwarded: list[bytes] = []
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"x-forwarded-for":
            forwarded.append(value)
        elif lowered == b"sec-websocket-protocol":
            kept = without_token(value.decode("latin-1"))
            lines += [name + b": " + kept.encode("latin-1")] if kept else []
        elif lowered != b"authorization":
            lines.append(name + b": " + value)
    forwarded += [client.encode("ascii")] if client else []
    if forwarded:
        lines.append(b"X-Forwarded-For: " + b", ".join(forwarded))
    return b"\r\n".join((*lines, b"", b""))


def spdy_request(server: StreamingServer, protocols: Iterable[str], headers: Mapping[str, str] | None = None) -> bytes:
    """Return our own request for a SPDY connection that carries one of these sub-protocols."""
    lines = [f"POST {server.target} HTTP/1.1", f"Host: {server.authority}"]
    lines += ["Connection: Upgrade", "Upgrade: SPDY/3.1"]
    lines += [f"X-Stream-Protocol-Version: {protocol}" for protocol in protocols]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join((*lines, "Content-Length: 0", "", "")).encode("latin-1")


def parse_response_head(head: bytes) -> ResponseHead:
    """Status line and headers, up to and with the empty line. Raises UpgradeError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not status.isdigit():
        raise UpgradeError(f"error sending request: malformed HTTP response {first[:80]!r}")
    pairs = (line.partition(":") for line in lines if ":" in line)
    return ResponseHead(int(status), tuple((name.strip(), value.strip()) for name, _, value in pairs))


def decode_chunked(raw: bytes) -> bytes:
    """Return the content of a chunked body, as far as it is there."""
    content, at = b"", 0
    while (end := raw.find(b"\r\n", at)) >= 0:
        try:
            length = int(raw[at:end].split(b";")[0], 16)
        except ValueError:
            break
        if not length:
            break
        content += raw[end + 2 : end + 2 + length]
        at = end + 4 + length
    return content


def is_spdy(head: ResponseHead) -> bool:
    """Return whether this 101 announces SPDY."""
    return "upgrade" in head.get("Connection").lower() and "spdy/3.1" in head.get("Upgrade").lower()
