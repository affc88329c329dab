"""Requests to the agent's HTTP API over the local socket of its run directory, which needs no credentials."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from shared.errors import OperatorError
from shared.places import LOCAL_SOCKET

ANSWER = 10.0  # seconds until the head of an answer
_HOST = "http://bulkhead"  # part of a URL; a Unix socket has no host
_REMEDY = "bulkhead status shows the processes"
_UPGRADE_REQUIRED = "Upgrade request required"
_LONGEST_REFUSAL = 4096  # bytes of a refusal that are shown
_LONGEST_MESSAGE = 32 << 20  # bytes of a WebSocket message

Query = Sequence[tuple[str, str]]


class LocalServer:
    """The HTTP API of the agent with this run directory."""

    def __init__(self, run_dir: str, client: aiohttp.ClientSession) -> None:
        self._where, self._client = str(Path(run_dir) / LOCAL_SOCKET), client

    @asynccontextmanager
    async def get(self, path: str, query: Query) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer with its head received. Raises OperatorError for a refusal, or if there is no complete answer."""
        try:
            async with asyncio.timeout(ANSWER):
                response = await self._client.get(_HOST + path, params=query)
        except (aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            raise self._failure(error) from error
        try:
            async with response:
                if response.status != 200:
                    refusal = await response.content.read(_LONGEST_REFUSAL)
                    raise OperatorError(refusal.decode(errors="replace").strip())
                yield response
        except aiohttp.ClientError as error:  # the process of server was killed meanwhile
            raise OperatorError("the answer broke off", where=self._where, remedy=_REMEDY) from error

    @asynccontextmanager
    async def websocket(self, path: str, query: Query, protocol: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """An open WebSocket. Raises OperatorError for a refusal, or if there is no answer."""
        try:
            async with asyncio.timeout(ANSWER):
                socket = await self._client.ws_connect(
                    _HOST + path, params=query, protocols=(protocol,), max_msg_size=_LONGEST_MESSAGE
                )
        except aiohttp.WSServerHandshakeError as error:
            raise await self._refusal(path, query, error.status) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._failure(error) from error
        async with socket:
            yield socket

    async def _refusal(self, path: str, query: Query, status: int) -> OperatorError:
        """The handshake has no text of its own: what is refused before an upgrade is refused again."""
        try:
            async with self.get(path, query):
                pass
        except OperatorError as error:
            if str(error) != _UPGRADE_REQUIRED:
                return error
        return OperatorError(f"the runtime refused it (HTTP status {status}; bulkhead logs --service server)")

    def _failure(self, error: BaseException) -> OperatorError:
        why = "does not answer" if isinstance(error, TimeoutError) else "cannot be reached"
        return OperatorError(f"server {why}", where=self._where, remedy=_REMEDY)


@asynccontextmanager
async def local_server(run_dir: str) -> AsyncIterator[LocalServer]:
    """The HTTP API of this run directory's agent; connects at the first request."""
    connector = aiohttp.UnixConnector(path=str(Path(run_dir) / LOCAL_SOCKET))
    timeout = aiohttp.ClientTimeout(total=None)
    plain = {"Accept-Encoding": "identity"}  # what is answered is copied as it comes
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=plain) as client:
        yield LocalServer(run_dir, client)
