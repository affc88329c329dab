"""HTTP/2 frames and header blocks as a server sends and reads them, for tests."""

import struct
from enum import IntEnum

from hpack import Decoder, Encoder

END_STREAM, END_HEADERS, PADDED, PRIORITY, ACK = 1, 4, 8, 0x20, 1


class Frame(IntEnum):
    """The types of frames that tests send."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    CONTINUATION = 9


def block(*fields: tuple[str, str]) -> bytes:
    """The fields as a header block that refers to no other."""
    return Encoder().encode(fields)


def fields_of(coded: bytes) -> list[tuple[str, str]]:
    """The first header block of a connection, decoded."""
    return [(str(name), str(value)) for name, value in Decoder().decode(coded)]


def frame(kind: int, flags: int, payload: bytes = b"", stream: int = 1) -> bytes:
    """One frame; `payload` of any length."""
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


SETTINGS = frame(Frame.SETTINGS, 0, stream=0)
