"""The HTTP/2 connections that the watches of one process share, with the credentials they were opened with.

One connection, and another one only while the server permits no more streams on those there are. A server that does not
agree on HTTP/2 gets its watches over HTTP/1.1.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from shared.kube import dialing
from shared.kube.failures import BrokenStreamError
from shared.kube.http2_connection import Http2Connection, StreamAnswer

_MAX_ATTEMPTS = 3  # for one request, where the server did not process it
_MAX_CONNECTIONS = 40  # a server that permits so few streams gets fewer watches
_ASK_AGAIN_SECONDS = 600.0  # until a server without HTTP/2 is asked for it again: another one may have its address
_NO_ROOM = "the server accepts no more streams"


class Http2Pool:
    """`server`: the URL, https only; `make_context`: called once, when it is needed first, and may raise OSError or
    ValueError; `headers` go with each request. Belongs to one event loop; `close` it."""

    def __init__(
        self,
        server: str,
        server_name: str,
        make_context: Callable[[], ssl.SSLContext],
        headers: Mapping[str, str],
    ) -> None:
        parts = urlsplit(server)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._server_name = server_name or self._host
        authority = f"[{self._host}]" if ":" in self._host else self._host
        self._fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", authority if self._port == 443 else f"{authority}:{self._port}"),
        ]
        self._headers = [(name.lower(), value) for name, value in headers.items()]
        self._make_context = make_context
        self._context: ssl.SSLContext | None = None
        self._connections: list[Http2Connection] = []
        self._dialing: asyncio.Task[None] | None = None
        self._waiting = 0  # requests that wait for it
        self._without_until = float("-inf")  # by the loop's clock: the server spoke no HTTP/2
        self._closed = False
        self.is_agreed: bool | None = None  # the server speaks HTTP/2; None = it was not dialed

    async def get(self, target: str, connected: Callable[[], None]) -> StreamAnswer | None:
        """Send a GET for path and query, escaped, and wait for the head of its answer; None = the server speaks no
        HTTP/2. `connected` is called once the request has a connection. Raises BrokenStreamError, OSError."""
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            connection = await self._with_room()
            if connection is None:
                return None
            connected()
            answer = connection.request([*self._fields, (":path", target), *self._headers])
            try:
                await answer.head()
            except BaseException as error:
                answer.close()
                if isinstance(error, BrokenStreamError) and error.again and attempt < _MAX_ATTEMPTS:
                    continue
                raise
            return answer
        raise AssertionError

    def close(self) -> None:
        """Close everything, also answers under way."""
        self._closed = True
        if self._dialing is not None:
            self._dialing.cancel()
        for connection in list(self._connections):
            connection.close()

    async def _with_room(self) -> Http2Connection | None:
        while not self._closed:
            if asyncio.get_running_loop().time() < self._without_until:
                return None
            for connection in self._connections:
                if connection.has_room:
                    return connection
            if self._dialing is None:
                if len(self._connections) >= _MAX_CONNECTIONS:
                    raise BrokenStreamError(_NO_ROOM, again=False, is_outage=False)
                self._dialing = asyncio.create_task(self._dial(), name="HTTP/2 connection to the API server")
                self._dialing.add_done_callback(self._dialed)
            await self._wait_for(self._dialing)
        raise BrokenStreamError("the client is closed", again=False)

    async def _wait_for(self, dialing: "asyncio.Task[None]") -> None:
        """Raises what the dial raises. A dial for which no request waits any more is given up: the next request begins
        one of its own, and does not wait for packets that were lost before."""
        self._waiting += 1
        try:
            await asyncio.wait([dialing])
        finally:
            self._waiting -= 1
            if not self._waiting and not dialing.done():
                dialing.cancel()
                self._dialing = None
        if not dialing.cancelled():
            dialing.result()

    async def _dial(self) -> None:
        if self._context is None:
            self._context = self._make_context()
        connection = Http2Connection(self._ended)
        await dialing.dial(connection, self._host, self._port, self._context, self._server_name)
        try:
            async with asyncio.timeout(dialing.CONNECT_TIMEOUT_SECONDS):
                await connection.ready
            if not connection.speaks_http2 or not connection.permitted:
                self.is_agreed = False
                self._without_until = asyncio.get_running_loop().time() + _ASK_AGAIN_SECONDS
            elif not connection.has_room:
                raise BrokenStreamError(_NO_ROOM, again=False, is_outage=False)
            else:
                self.is_agreed = True
                self._connections.append(connection)
                return
        except BaseException:
            connection.close()
            raise
        connection.close()

    def _dialed(self, task: "asyncio.Task[None]") -> None:
        if self._dialing is task:
            self._dialing = None
        if not task.cancelled():
            task.exception()  # perhaps no request waits for it any more

    def _ended(self, connection: Http2Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
