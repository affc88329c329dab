"""Makes a connection to a plugin's Unix socket in the event loop: for unary calls, and for a stream of which the newest
message counts.

Errors are those of `connection`, in Go's words.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import Message

from shared.plugin_grpc.connection import CHANNEL_OPTIONS, Answer, PluginCallError, call_error, decoded


class AsyncPluginConnection:
    """Calls over one channel; made by `connected_async`."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def call(self, method: str, request: Message, answer: type[Answer], timeout: float) -> Answer:
        """Call `/package.Service/Method`; `timeout` in seconds includes the connection. Raises PluginCallError."""
        # As a stream, for a unary call waits for its timeout when a plugin answers twice.
        call = self._begin(method, request, timeout)
        try:
            found: list[bytes] = []
            async for message in call:
                found.append(message)
                if len(found) == 2:
                    break
            if len(found) != 1:
                raise PluginCallError("Internal", f"{method} has {'two answers' if found else 'no answer'}")
            return decoded(found[0], answer, method)
        except grpc.RpcError as error:
            raise call_error(error) from None
        finally:
            call.cancel()

    def follow(self, method: str, request: Message) -> "NewestMessage":
        """Begin a call whose answer is a stream, without a deadline."""
        return NewestMessage(self._begin(method, request, None))

    def _begin(self, method: str, request: Message, timeout: float | None) -> Any:
        return self._channel.unary_stream(
            method, request_serializer=lambda message: message.SerializeToString(), response_deserializer=None
        )(request, timeout=timeout)


class NewestMessage:
    """Reads a stream, and keeps its newest message only: one that is replaced before it is taken is never decoded."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._newest: bytes | None = None
        self._error: PluginCallError | None = None
        self._news = asyncio.Event()
        self.ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read(), name="plugin stream")

    async def take(self) -> bytes:
        """Return the newest message that was not taken yet. Raises PluginCallError once the stream has ended, also
        where its last message was not taken."""
        while self._newest is None or self.ended.is_set():
            if self._error is not None:
                raise self._error
            self._news.clear()
            await self._news.wait()
        message, self._newest = self._newest, None
        return message

    def close(self) -> None:
        """Cancel the call."""
        self._reading.cancel()
        self._call.cancel()

    async def _read(self) -> None:
        try:
            async for message in self._call:
                self._newest = message
                self._news.set()
            self._error = PluginCallError("Unavailable", "the plugin has ended the stream")
        except grpc.RpcError as error:
            self._error = call_error(error)
        except Exception as error:
            self._error = PluginCallError("Internal", f"unexpected {type(error).__name__}")
        finally:
            self.ended.set()
            self._news.set()


@asynccontextmanager
async def connected_async(socket: str) -> AsyncIterator[AsyncPluginConnection]:
    """Yield a connection to the plugin at the absolute path of its socket, which the first call opens."""
    channel = grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)
    try:
        yield AsyncPluginConnection(channel)
    finally:
        await channel.close(None)
