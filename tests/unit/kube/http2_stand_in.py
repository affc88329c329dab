"""A small HTTP/2 server over TLS that does what a test orders: heads, pieces, resets, GOAWAY, silence."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import PingAckReceived, RequestReceived, StreamReset, WindowUpdated
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from tests.unit.kube.tls_world import Authority, write_pair

CA = Authority()


@dataclass(eq=False)
class Asked:
    """One request, and the ways to answer it."""

    connection: "ServerConnection"
    stream: int
    headers: dict[str, str]
    unsent: bytearray = field(default_factory=bytearray)

    def head(self, status: int = 200, **headers: str) -> None:
        """Send the head of the answer."""
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.connection.h2.send_headers(self.stream, [(":status", str(status)), *named])
        self.connection.flush()

    def send(self, data: bytes) -> None:
        """Send as much as the windows permit, the rest once they permit it."""
        self.unsent += data
        self.connection.pump(self)

    def end(self) -> None:
        """End the answer."""
        self.connection.h2.end_stream(self.stream)
        self.connection.flush()

    def reset(self, code: ErrorCodes) -> None:
        """RST_STREAM."""
        self.connection.h2.reset_stream(self.stream, code)
        self.connection.flush()


class ServerConnection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: "Http2StandIn") -> None:
        self.server = server
        self.h2 = H2Connection(H2Configuration(client_side=False))
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.asked: list[Asked] = []
        self.resets: list[int] = []
        self.pongs = 0
        self.silent = False  # reads nothing and answers nothing
        self.closed = asyncio.Event()
        self.peer = ""  # the name of the client's certificate

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        certificate: Any = transport.get_extra_info("peercert") or {}
        self.peer = dict(pair for part in certificate.get("subject", ()) for pair in part).get("commonName", "")
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            self.server.http1.append(self)
            return
        self.server.connections.append(self)
        settings = {SettingCodes.MAX_CONCURRENT_STREAMS: self.server.streams}
        self.h2.local_settings = Settings(client=False, initial_values=settings)
        self.h2.initiate_connection()
        self.silent = self.server.silent
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self in self.server.http1:
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            return
        if self.silent:
            return
        try:
            events = self.h2.receive_data(data)
        except H2Error:
            self.transport.abort()
            return
        for event in events:
            match event:
                case RequestReceived():
                    headers = {name.decode(): value.decode() for name, value in event.headers}
                    asked = Asked(self, event.stream_id, headers)
                    self.asked.append(asked)
                    self.server.asked.append(asked)
                    self.server.handler(asked)
                case StreamReset():
                    self.resets.append(event.stream_id)
                case PingAckReceived():
                    self.pongs += 1
                case WindowUpdated():
                    for one in self.asked:
                        self.pump(one)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def pump(self, asked: Asked) -> None:
        """Send what the windows permit."""
        while asked.unsent and asked.stream not in self.resets:
            size = min(len(asked.unsent), self.h2.local_flow_control_window(asked.stream), 16384)
            if size <= 0:
                break
            self.h2.send_data(asked.stream, bytes(asked.unsent[:size]))
            del asked.unsent[:size]
        self.flush()

    def flush(self) -> None:
        """Write what h2 has for us."""
        if (data := self.h2.data_to_send()) and not self.silent and not self.transport.is_closing():
            self.transport.write(data)

    def go_away(self, last_stream: int) -> None:
        """GOAWAY as a server that drains: h2 itself would end the connection by it."""
        payload = last_stream.to_bytes(4, "big") + bytes(4)
        self.transport.write(len(payload).to_bytes(3, "big") + b"\x07\x00" + bytes(4) + payload)


@dataclass
class Http2StandIn:
    """The server's side. `handler` is called with each request; `streams` may be open at once on a connection."""

    url: str = ""
    streams: int = 250
    silent: bool = False  # of the connections to come: not even settings are sent
    handler: Callable[[Asked], None] = Asked.head
    connections: list[ServerConnection] = field(default_factory=list)
    http1: list[ServerConnection] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)


@asynccontextmanager
async def serving_http2(
    directory: Path, *, protocols: tuple[str, ...] = ("h2", "http/1.1"), with_client_certificates: bool = False
) -> AsyncIterator[Http2StandIn]:
    """Serve on a port of 127.0.0.1, as `CA` certifies."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*write_pair(CA.issue("api"), directory, "http2-server"))
    context.set_alpn_protocols(list(protocols))
    if with_client_certificates:
        context.load_verify_locations(cadata=CA.pem.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    server = Http2StandIn()
    listener = await asyncio.get_running_loop().create_server(
        lambda: ServerConnection(server), "127.0.0.1", 0, ssl=context
    )
    server.url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for connection in [*server.connections, *server.http1]:
            connection.transport.abort()
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, at most 10 s."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)
