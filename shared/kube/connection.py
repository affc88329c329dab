"""The connections to the API server that were opened with one set of credentials: HTTP/1.1 for requests, HTTP/2 for
watches.

Built again when the credentials change: connections of the old identity end with their requests.
"""

import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from shared.kube import dialing
from shared.kube.credentials import Credentials
from shared.kube.environment_proxy import UnsupportedProxyError, proxy_of_environment
from shared.kube.http2_pool import Http2Pool
from shared.kube.interface import ApiUnreachableError

_MAX_IDLE_SECONDS = 60.0  # of a connection; the server keeps it longer, so that ours is never a dead one


@dataclass(eq=False)
class Connection:
    """A connection pool that counts its requests. End it by `retire`, which waits for the requests in progress."""

    credentials: Credentials
    session: aiohttp.ClientSession
    request_options: dict[str, Any] = field(default_factory=dict)
    http2: Http2Pool | None = None  # None = no TLS, or a proxy is between
    users: int = 0
    retired: bool = False

    @property
    def peer(self) -> str:
        """Return `host:port` of the API server, for messages."""
        return peer_of(self.credentials.server)

    def url(self, path: str, query: Mapping[str, str]) -> URL:
        """Return the escaped URL of a resource; `path` and `query` are unescaped."""
        escaped = urllib.parse.quote(path, safe="/:@!$&'()*+,;=~")
        text = f"{self.credentials.server}{escaped}"
        return URL(f"{text}?{urllib.parse.urlencode(query)}" if query else text, encoded=True)

    def enter(self) -> None:
        """Note that a request begins."""
        self.users += 1

    async def leave(self) -> None:
        """Note that a request has ended; after `retire` the last one closes the pool."""
        self.users -= 1
        if self.retired and not self.users:
            await self.close()

    async def retire(self) -> None:
        """Accept no new requests; idle connections close now, the others with their requests."""
        self.retired = True
        if not self.users:
            await self.close()

    async def close(self) -> None:
        """Close all connections, also those of requests in progress."""
        self.retired = True
        if self.http2 is not None:
            self.http2.close()
        await self.session.close()


@dataclass
class ConnectionState:
    """Whether a request has a connection."""

    connected: bool = False

    def set_connected(self) -> None:
        """Note that the request has a connection."""
        self.connected = True


class HttpAnswer:
    """`Answer` over HTTP/1.1."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status, self.retry_after = response.status, response.headers.get("Retry-After")

    async def readany(self) -> bytes:
        return await self._response.content.readany()

    def close(self) -> None:
        self._response.close()  # a body that was read to its end has given its connection back before


def open_connection(credentials: Credentials, user_agent: str) -> Connection:
    """Return a pool for these credentials, not yet connected. Raises ApiUnreachableError if they are unusable."""
    peer = peer_of(credentials.server)
    try:
        proxy = credentials.proxy_url or proxy_of_environment(credentials.server)
    except UnsupportedProxyError as error:
        raise ApiUnreachableError(f"{peer}: {error}") from None
    headers = {"User-Agent": user_agent, "Accept": "application/json"}
    try:
        if credentials.token_file:
            headers["Authorization"] = f"Bearer {_token(Path(credentials.token_file))}"
        secure: ssl.SSLContext | bool = _tls(credentials) if credentials.server.startswith("https:") else True
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        what = getattr(error, "reason", None) or getattr(error, "strerror", None) or "not a token"
        name = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        remedy = "check the files the kubeconfig names; bootstrap copies them again when they change"
        raise ApiUnreachableError(f"{peer}: the credentials cannot be used: {name}{what} ({remedy})") from None
    connector = aiohttp.TCPConnector(
        ssl=secure,
        limit=0,
        limit_per_host=0,
        keepalive_timeout=_MAX_IDLE_SECONDS,
        socket_factory=dialing.make_socket,
        ttl_dns_cache=10,
    )
    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(_connected)
    trace.on_connection_reuseconn.append(_connected)
    session = aiohttp.ClientSession(
        connector=connector,
        trace_configs=[trace],
        headers=headers,
        timeout=aiohttp.ClientTimeout(
            total=None, connect=None, sock_connect=dialing.CONNECT_TIMEOUT_SECONDS, sock_read=None
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        raise_for_status=False,
    )
    options: dict[str, Any] = {"allow_redirects": False}
    if credentials.tls_server_name:
        options["server_hostname"] = credentials.tls_server_name
    if proxy:
        options["proxy"] = proxy
    http2 = None
    if secure is not True and not proxy:
        http2 = Http2Pool(credentials.server, credentials.tls_server_name, lambda: _tls(credentials, "h2"), headers)
    return Connection(credentials, session, options, http2)


async def _connected(_session: aiohttp.ClientSession, request: Any, _parameters: Any) -> None:
    state = request.trace_request_ctx
    if isinstance(state, ConnectionState):
        state.set_connected()


def peer_of(server: str) -> str:
    """Return `host:port` of a server URL."""
    parts = urllib.parse.urlsplit(server)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or server
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _token(file: Path) -> str:
    """Return the token. Raises OSError, or ValueError for what a header cannot hold."""
    token = file.read_text(encoding="utf-8").strip()
    if not token.isascii() or not token.isprintable():
        raise ValueError
    return token


def _tls(credentials: Credentials, *protocols: str) -> ssl.SSLContext:
    """Return the TLS context. Raises OSError (ssl.SSLError among them) when a file cannot be used."""
    context = ssl.create_default_context(cafile=credentials.ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # clusters' own authorities are not made to that letter
    # Each certificate of the CA file is trusted, self-signed or not, as in Go; Python does so only from 3.13 on.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if credentials.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([*protocols, "http/1.1"])
    if credentials.client_certificate_file:
        context.load_cert_chain(credentials.client_certificate_file, credentials.client_key_file or None, password="")
    return context
