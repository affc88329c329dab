"""Serves HTTP on a Unix socket to the root user of this machine: bounds requests and checks who sends them.

It decides nothing about their content.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from shared.agent.apply_api import MAX_APPLIED_BYTES

log = logging.getLogger(__name__)

MAX_BODY_SECONDS = 10.0  # for all bytes of a body
MAX_BODIES = 4  # that are read at the same time
ROOT = 0
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid

# Takes the method, the path and the body, of at most MAX_APPLIED_BYTES bytes and one more; returns the status code
# and the JSON object of the answer.
Handle = Callable[[str, str, bytes], Awaitable[tuple[int, dict[str, Any]]]]


class ApplySocket:
    """Serves the socket at `path`, only to root and the user of this process, by its mode and by the peer's
    credentials."""

    def __init__(self, path: Path, handle: Handle) -> None:
        self._path, self._handle = path, handle
        self._bodies = asyncio.Semaphore(MAX_BODIES)
        self._web = web.Server(self._answer, access_log=None)
        self._listening: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; a socket that an earlier process left is replaced. Raises OSError."""
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            _bind(listener, temporary)
            temporary.chmod(0o600)
            self._listening = await asyncio.get_running_loop().create_unix_server(self._web, sock=listener)
            temporary.rename(self._path)
        except BaseException:  # BaseException, because the task may be cancelled meanwhile
            if self._listening is not None:
                self._listening.close()
                self._listening = None
            listener.close()
            temporary.unlink(missing_ok=True)
            raise

    async def close(self) -> None:
        """Stop listening and end the connections. The path stays, because it may belong to a later process."""
        if self._listening is not None:
            self._listening.close()
        await self._web.shutdown(timeout=0.1)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if not _is_trusted(request):
            return _response(401, failure("Unauthorized", "Unauthorized", 401))
        async with self._bodies:
            try:
                async with asyncio.timeout(MAX_BODY_SECONDS):
                    body = await _body(request)
            except TimeoutError:
                return _response(408, failure(f"no complete request within {MAX_BODY_SECONDS:.0f} s", "Timeout", 408))
            try:
                code, answer = await self._handle(request.method, request.path, body)
            except Exception:  # a request must not end the process
                log.exception("a request to %s could not be answered", self._path)
                code, answer = 500, failure("no answer because of an error: see sources.log", "InternalError", 500)
        return _response(code, answer)


def _bind(listener: socket.socket, path: Path) -> None:
    """Bind to the path, whose directory may have more characters than the address of a socket. Raises OSError."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)


def failure(message: str, reason: str, code: int) -> dict[str, Any]:
    """Return a Kubernetes Status as a JSON object."""
    named = {"message": message, "reason": reason, "code": code}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **named}


def _response(code: int, answer: dict[str, Any]) -> web.Response:
    response = web.Response(status=code, body=orjson.dumps(answer) + b"\n", content_type="application/json")
    if code in (401, 408, 413):
        response.force_close()  # the rest of the body is not read
    return response


async def _body(request: web.BaseRequest) -> bytes:
    body = bytearray()
    limit = MAX_APPLIED_BYTES + 1
    while len(body) < limit and (chunk := await request.content.read(limit - len(body))):
        body += chunk
    return bytes(body)


def _is_trusted(request: web.BaseRequest) -> bool:
    transport = request.transport
    if transport is None:
        return False
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as peer:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(credentials)
    return uid in (ROOT, os.geteuid())
