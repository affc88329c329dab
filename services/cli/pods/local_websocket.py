"""A WebSocket to the agent's HTTP API over the local socket of its run directory, which needs no credentials."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from services.cli.agent.local_server import ANSWER, Query, answer, failure
from shared.agent.places import LOCAL_SOCKET
from shared.errors import OperatorError

_HOST = "http://bulkhead"  # part of a URL; a Unix socket has no host
_UPGRADE_REQUIRED = "Upgrade request required"
_CLOSE = 1.0  # seconds that the other side has to end a session that is given up
_MAX_MESSAGE_BYTES = 32 << 20  # bytes of a WebSocket message


@asynccontextmanager
async def local_websocket(
    run_dir: str, path: str, query: Query, protocol: str
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """An open WebSocket. Raises OperatorError for a refusal, or if there is no answer."""
    where = str(Path(run_dir) / LOCAL_SOCKET)
    connector = aiohttp.UnixConnector(path=where)
    timeout, ends = aiohttp.ClientTimeout(total=None), aiohttp.ClientWSTimeout(ws_close=_CLOSE)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        try:
            async with asyncio.timeout(ANSWER):
                socket = await client.ws_connect(
                    _HOST + path, params=query, protocols=(protocol,), max_msg_size=_MAX_MESSAGE_BYTES, timeout=ends
                )
        except aiohttp.WSServerHandshakeError as error:
            raise await asyncio.to_thread(_refusal, run_dir, path, query, error.status) from error
        except (aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            raise failure(where, error) from error
        async with socket:
            yield socket


def _refusal(run_dir: str, path: str, query: Query, status: int) -> OperatorError:
    """The handshake has no text of its own: what is refused before an upgrade is refused again."""
    try:
        with answer(run_dir, path, query):
            pass
    except OperatorError as error:
        if str(error) != _UPGRADE_REQUIRED:
            return error
    return OperatorError(f"the runtime refused it (HTTP status {status}; bulkhead logs --service server)")
