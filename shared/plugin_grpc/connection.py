"""One connection to a plugin's Unix socket, with blocking unary calls and gRPC's errors in Go's words.

A connection belongs to one operation: a plugin that was restarted is reached by the next operation without any state.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from shared.plugin_grpc.grpc_codes import code_name

PluginMessage = Message
Answer = TypeVar("Answer", bound=Message)

MAX_MESSAGE_BYTES = 4 * 1024 * 1024  # of one answer, as in the kubelet's gRPC
_MAX_ERROR_CHARACTERS = 4096  # of an error that a plugin returns
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 64 * 1024),
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else connections to one socket would be shared
    ("grpc.min_reconnect_backoff_ms", 5000),  # one attempt may take so long
)


class PluginCallError(Exception):
    """A call failed. `code`: Go's name, as `DeadlineExceeded`; `str()` is Go's text of the error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {message}")
        self.code, self.message = code, message


def call_error(error: Any) -> PluginCallError:
    """Return the error of a call that ended with this `grpc.RpcError`."""
    return PluginCallError(code_name(error.code()), (error.details() or "")[:_MAX_ERROR_CHARACTERS])


def decoded(data: bytes, kind: type[Answer], method: str) -> Answer:
    """Return the answer to the method. Raises PluginCallError."""
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise PluginCallError("Internal", f"the answer to {method} cannot be decoded") from None
    return message


class PluginConnection:
    """Calls over one channel. Blocking; made by `connected`."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def call(self, method: str, request: Message, answer: type[Answer], timeout: float) -> Answer:
        """Call `/package.Service/Method`; `timeout` in seconds includes the connection. Raises PluginCallError."""

        # As a stream, for a unary call waits for its timeout when a plugin answers twice.
        call = self._channel.unary_stream(
            method, request_serializer=_serialized, response_deserializer=lambda data: data
        )
        answers = call(request, timeout=timeout)
        try:
            found = list(islice(answers, 2))
        except grpc.RpcError as error:
            raise call_error(error) from None
        if len(found) != 1:
            answers.cancel()
            raise PluginCallError("Internal", f"{method} has {'two answers' if found else 'no answer'}")
        return decoded(found[0], answer, method)


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


@contextmanager
def connected(socket: str) -> Iterator[PluginConnection]:
    """Yield a connection to the plugin at the absolute path of its socket, which the first call opens."""
    channel = grpc.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)
    try:
        yield PluginConnection(channel)
    finally:
        channel.close()
