"""Opens a WebSocket to the agent's HTTP API over the local socket of its run directory, which needs no credentials."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from services.cli.agent.local_server import MAX_ANSWER_SECONDS, Query, answer_error, open_answer
from shared.agent.places import LOCAL_SOCKET
from shared.errors import OperatorError

_HOST = "http://bulkhead"  # a URL needs a host; a Unix socket has none
_UPGRADE_REQUIRED = "Upgrade request required"
_MAX_CLOSE_SECONDS = 1.0  # that the other side has to end a session that is given up
_MAX_MESSAGE_BYTES = 32 << 20  # of a WebSocket message


@asynccontextmanager
async def local_websocket(
    run_dir: str, path: str, query: Query, protocol: str
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Yield an open WebSocket. Raises OperatorError for a refusal, or if there is no answer."""
    where = str(Path(run_dir) / LOCAL_SOCKET)
    connector = aiohttp.UnixConnector(path=where)
    timeout, ends = aiohttp.ClientTimeout(total=None), aiohttp.ClientWSTimeout(ws_close=_MAX_CLOSE_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                socket = await client.ws_connect(
                    _HOST + path, params=query, protocols=(protocol,), max_msg_size=_MAX_MESSAGE_BYTES, timeout=ends
                )
        except aiohttp.WSServerHandshakeError as error:
            raise await asyncio.to_thread(_refusal_error, run_dir, path, query, error.status) from error
        except (aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            raise answer_error(where, error) from error
        async with socket:
            yield socket


def _refusal_error(run_dir: str, path: str, query: Query, status: int) -> OperatorError:
    """Return the error for a refused handshake, which has no text: the text comes from a plain request that is refused
    alike."""
    try:
        with open_answer(run_dir, path, query):
            pass
    except OperatorError as error:
        if str(error) != _UPGRADE_REQUIRED:
            return error
    return OperatorError(f"the runtime refused it (HTTP status {status}; bulkhead logs --service server)")
