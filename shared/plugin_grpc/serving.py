"""A gRPC server on a Unix socket of this node: methods with one answer or a stream of them, with errors in Go's names.

The socket appears under its name when it takes calls. It is made beside that name and renamed: gRPC removes the path
that it bound when it ends, which a successor's socket must survive.
"""

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from msgspec import Struct

log = logging.getLogger(__name__)

MAX_CALLS = 128  # at the same time, over all connections
MAX_REQUEST_BYTES = 64 * 1024
MAX_SOCKET_PATH_BYTES = 107  # of a Unix socket's path
RETRY_SECONDS = 5.0  # between two attempts to open the socket
_CODES = {
    "Unknown": grpc.StatusCode.UNKNOWN,
    "ResourceExhausted": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "InvalidArgument": grpc.StatusCode.INVALID_ARGUMENT,
    "Internal": grpc.StatusCode.INTERNAL,
    "NotFound": grpc.StatusCode.NOT_FOUND,
    "FailedPrecondition": grpc.StatusCode.FAILED_PRECONDITION,
    "Unimplemented": grpc.StatusCode.UNIMPLEMENTED,
    "DeadlineExceeded": grpc.StatusCode.DEADLINE_EXCEEDED,
    "Unavailable": grpc.StatusCode.UNAVAILABLE,
}


class CallRefusedError(Exception):
    """A call is answered with an error. `code`: Go's name of it, one of _CODES; `str()` is the text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Method(Struct, frozen=True):
    """One unary method: the type of its request, and what answers it. The handler raises CallRefusedError."""

    request: type[Message]
    handle: Callable[[Any], Awaitable[Message]]


class StreamMethod(Struct, frozen=True):
    """One method with a stream of answers, which ends when the handler does. It raises CallRefusedError."""

    request: type[Message]
    handle: Callable[[Any], AsyncIterator[Message]]


class SocketServer:
    """Serves `services`, methods by name by service name, on the socket at `path` between `start` and `stop`."""

    def __init__(
        self,
        path: Path,
        services: Mapping[str, Mapping[str, Method | StreamMethod]],
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_calls: int = MAX_CALLS,
    ) -> None:
        self._path, self._services, self._max_request_bytes = path, services, max_request_bytes
        self._max_calls = max_calls
        self._server: Any = None

    async def start(self) -> None:
        """Take calls. Raises OSError."""
        own = self._path.with_name(f".{os.getpid()}.sock")
        if len(os.fsencode(own)) > MAX_SOCKET_PATH_BYTES:
            raise OSError(
                f"the path is longer than {MAX_SOCKET_PATH_BYTES - len(own.name) + len(self._path.name)} bytes"
            )
        if not self._path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "its directory is missing")
        for left in self._path.parent.glob(".[0-9]*.sock"):  # of processes that were killed before they renamed it
            left.unlink(missing_ok=True)
        options = (
            ("grpc.max_receive_message_length", self._max_request_bytes),
            ("grpc.max_concurrent_streams", self._max_calls),
            ("grpc.max_metadata_size", 16 * 1024),
        )
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=self._max_calls)
        for name, methods in self._services.items():
            handlers = {method: _handler(f"{name}.{method}", of) for method, of in methods.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        try:
            if not server.add_insecure_port(f"unix:{own}"):
                raise OSError("it cannot be bound")
            await server.start()
            own.rename(self._path)
        except RuntimeError as error:
            raise OSError("it cannot be bound") from error
        except OSError:
            await server.stop(None)
            raise
        self._server = server

    async def open(self, trouble: Callable[[str | None], None]) -> None:
        """Take calls as soon as the socket can be opened. `trouble` receives the line about why it cannot, and then
        None."""
        logged = ""
        while True:
            try:
                await self.start()
            except OSError as error:
                reason = error.strerror or str(error)
                line = f"{self._path}: cannot listen: {reason} (repair its directory, or restart bootstrap)"
                if line != logged:
                    log.error("%s; trying again every %d s", line, RETRY_SECONDS)
                logged = line
                trouble(line)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                trouble(None)
                return

    async def stop(self) -> None:
        """Take no more calls; those in progress get a second."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(1.0)


def _handler(name: str, method: Method | StreamMethod) -> Any:
    handle: Any = method.handle

    async def answer(request: Message | None, context: Any) -> Any:
        async with _aborting(name, context):
            return await handle(_decoded(name, request))
        raise AssertionError("abort raises")

    async def stream(request: Message | None, context: Any) -> AsyncIterator[Message]:
        async with _aborting(name, context):
            async for message in handle(_decoded(name, request)):
                yield message

    def decoded(data: bytes) -> Message | None:
        message = method.request()
        with contextlib.suppress(DecodeError):
            message.ParseFromString(data)
            return message
        return None

    kind, handler = (
        (grpc.unary_stream_rpc_method_handler, stream)
        if isinstance(method, StreamMethod)
        else (grpc.unary_unary_rpc_method_handler, answer)
    )
    return kind(handler, request_deserializer=decoded, response_serializer=lambda message: message.SerializeToString())


def _decoded(name: str, request: Message | None) -> Message:
    if request is None:
        raise CallRefusedError("InvalidArgument", f"the request of {name} cannot be decoded")
    return request


@contextlib.asynccontextmanager
async def _aborting(name: str, context: Any) -> AsyncIterator[None]:
    """Answer the call with the error that the block raises."""
    code, text = "Internal", "internal error"
    try:
        yield
        return
    except CallRefusedError as refused:
        code, text = refused.code, str(refused)
    except Exception:
        log.exception("%s failed", name)
    await context.abort(_CODES[code], text)
