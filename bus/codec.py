"""Encodes structs as JSON bytes and decodes them, within the limits of every message. Pure: knows nothing of
sockets, streams or logs.

Encoding sorts the keys of objects, so that equal values have equal bytes and an unchanged put is recognized."""

from typing import Any, TypeVar

import msgspec
import orjson

from shared.text.json_text import json_bytes

T = TypeVar("T")

# Kept, because building a decoder costs more than decoding a pod.
_DECODERS: "dict[Any, msgspec.json.Decoder[Any]]" = {}

PROTOCOL_VERSION = "2.9"
MAX_MESSAGE_BYTES = (
    16 * 1024 * 1024
)  # bytes of one encoded value, request, answer or beat; a Kubernetes object stays below 2 MiB


class UndecodableError(ValueError):
    """The bytes are not the expected message; the text names the place, never the content."""


class ForeignProtocolError(UndecodableError):
    """The other side speaks another major version of the protocol."""

    def __init__(self, version: str) -> None:
        self.version = version
        super().__init__(f"protocol {version!r} is not {PROTOCOL_VERSION}")


class UnencodableError(ValueError):
    """The value cannot be sent: it is no JSON, or too large."""


class MessageTooLargeError(UnencodableError):
    """The encoded message exceeds 16 MiB and was not sent."""


def encode(value: Any, what: str = "message") -> bytes:
    """Return the JSON bytes of a struct or plain value. `what` names it in errors. Raises UnencodableError,
    MessageTooLargeError."""
    encoded = encode_uncapped(value, what)
    check_size(len(encoded), what)
    return encoded


def encode_uncapped(value: Any, what: str = "message") -> bytes:
    """Return the JSON bytes without a limit of their size, for a snapshot: its values were each checked before. No text
    is refused: bytes of a name that are not UTF-8 are sent as escapes."""
    try:
        return json_bytes(value, default=_raw, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:  # orjson.JSONEncodeError: the value has a set, or a key that is no string
        raise UnencodableError(f"{what} is no JSON: {error}") from error


def check_size(size: int, what: str) -> None:
    """Raise MessageTooLargeError when `size` bytes exceed the limit."""
    if size > MAX_MESSAGE_BYTES:
        raise MessageTooLargeError(f"{what} is too large for the bus: {size} bytes, at most {MAX_MESSAGE_BYTES}")


def decode(data: bytes, to: type[T]) -> T:
    """Return the struct in these JSON bytes. Unknown fields are ignored; wrong types raise UndecodableError."""
    try:
        decoded: T = _decoder(to).decode(data)
    except (ValueError, RecursionError) as error:  # msgspec's errors and UnicodeDecodeError are ValueErrors
        raise UndecodableError(f"not a {to.__name__}: {error}") from error
    return decoded


def prepare(to: Any) -> None:
    """Build the decoder of a struct before its first message arrives."""
    _decoder(to)


def speaks(version: str) -> bool:
    """Return whether a peer of this protocol version is understood: its major version is the same."""
    return version == PROTOCOL_VERSION or version.partition(".")[0] == PROTOCOL_VERSION.partition(".")[0]


def _decoder(to: Any) -> "msgspec.json.Decoder[Any]":
    decoder = _DECODERS.get(to)
    if decoder is None:
        decoder = _DECODERS[to] = msgspec.json.Decoder(to)
    return decoder


def _raw(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return orjson.Fragment(bytes(value))
    raise TypeError(f"type {type(value).__name__} does not travel")
