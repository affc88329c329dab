"""SPDY/3.1 frames as bytes and back: what the runtime's streaming server speaks. Opens no connection, knows no streams.

An encoder and a decoder belong to one connection each: header blocks share a zlib context per direction.
"""

import struct
import zlib

from msgspec import Struct

from shared.spdy.dictionary import SPDY_DICTIONARY

MAX_PAYLOAD_BYTES = (1 << 24) - 1  # in one frame, as its 24 bit length allows

_VERSION = 3
_MAX_CONTROL_BYTES = 1 << 20  # of a control frame, and of the headers it unpacks to
_FIN, _UNIDIRECTIONAL = 0x01, 0x02
_HEAD = struct.Struct("!II")
_U32 = struct.Struct("!I")
_TWO = struct.Struct("!II")
_STREAM_BITS = 0x7FFFFFFF
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9

Pairs = tuple[tuple[str, str], ...]  # headers; names in lower case, a name may repeat


class SpdyProtocolError(Exception):
    """The other side sent what is no SPDY/3.1."""


class SynStream(Struct, frozen=True):
    """The frame that opens a stream. Clients use odd ids."""

    stream: int
    headers: Pairs = ()
    fin: bool = False
    unidirectional: bool = False
    associated: int = 0
    priority: int = 0  # 0 (highest) to 7


class SynReply(Struct, frozen=True):
    """The frame that accepts a stream."""

    stream: int
    headers: Pairs = ()
    fin: bool = False


class RstStream(Struct, frozen=True):
    """The frame that ends a stream at once."""

    stream: int
    status: int


class Settings(Struct, frozen=True):
    """The frame with settings, each as (flags, id, value)."""

    values: tuple[tuple[int, int, int], ...] = ()


class Ping(Struct, frozen=True):
    """The frame that is sent back by the side whose parity its id does not have."""

    id: int


class GoAway(Struct, frozen=True):
    """The frame after which no new streams are accepted. `last_stream`: the last one that was."""

    last_stream: int
    status: int = 0


class Headers(Struct, frozen=True):
    """The frame with more headers of a stream."""

    stream: int
    headers: Pairs = ()
    fin: bool = False


class WindowUpdate(Struct, frozen=True):
    """The frame by which `delta` more bytes may be sent. The runtimes' servers send none and wait for none."""

    stream: int
    delta: int


class Data(Struct, frozen=True):
    """The frame with bytes of a stream. A decoder hands a large frame on in pieces; `fin` comes with the last."""

    stream: int
    payload: bytes
    fin: bool = False


Frame = SynStream | SynReply | RstStream | Settings | Ping | GoAway | Headers | WindowUpdate | Data


class FrameEncoder:
    """Turns frames into bytes, in the order in which they are sent."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, zlib.MAX_WBITS, zdict=SPDY_DICTIONARY)

    def encode(self, frame: Frame) -> bytes:
        """Return the frame's bytes. Raises ValueError for more than `MAX_PAYLOAD_BYTES` of data."""
        match frame:
            case Data():
                if len(frame.payload) > MAX_PAYLOAD_BYTES:
                    raise ValueError(f"{len(frame.payload)} bytes do not fit into one frame")
                flags = _FIN if frame.fin else 0
                return _HEAD.pack(frame.stream, flags << 24 | len(frame.payload)) + frame.payload
            case SynStream():
                flags = (_FIN if frame.fin else 0) | (_UNIDIRECTIONAL if frame.unidirectional else 0)
                fixed = _TWO.pack(frame.stream, frame.associated) + bytes((frame.priority << 5, 0))
                return _control(_SYN_STREAM, flags, fixed + self._pack(frame.headers))
            case SynReply() | Headers():
                kind = _SYN_REPLY if isinstance(frame, SynReply) else _HEADERS
                return _control(kind, int(frame.fin), _U32.pack(frame.stream) + self._pack(frame.headers))
            case RstStream():
                return _control(_RST_STREAM, 0, _TWO.pack(frame.stream, frame.status))
            case Settings():
                entries = (_TWO.pack(flags << 24 | key, value) for flags, key, value in frame.values)
                return _control(_SETTINGS, 0, _U32.pack(len(frame.values)) + b"".join(entries))
            case Ping():
                return _control(_PING, 0, _U32.pack(frame.id))
            case GoAway():
                return _control(_GOAWAY, 0, _TWO.pack(frame.last_stream, frame.status))
            case WindowUpdate():
                return _control(_WINDOW_UPDATE, 0, _TWO.pack(frame.stream, frame.delta))

    def _pack(self, headers: Pairs) -> bytes:
        merged: dict[str, list[str]] = {}
        for name, value in headers:
            merged.setdefault(name.lower(), []).append(value)
        block = [_U32.pack(len(merged))]
        for name, values in merged.items():
            for text in (name, "\0".join(values)):
                encoded = text.encode("utf-8")
                block += [_U32.pack(len(encoded)), encoded]
        return self._zlib.compress(b"".join(block)) + self._zlib.flush(zlib.Z_SYNC_FLUSH)


class FrameDecoder:
    """Turns bytes into frames, wherever the bytes are cut. Holds back at most one incomplete control frame."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zdict=SPDY_DICTIONARY)
        self._rest = b""
        self._stream = self._left = 0  # of the data frame under way
        self._fin = False

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames, and pieces of data frames, that are complete with these bytes. Raises
        SpdyProtocolError."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        frames: list[Frame] = []
        at, end = 0, len(data)
        while at < end:
            if self._left:
                taken = min(self._left, end - at)
                self._left -= taken
                frames.append(Data(self._stream, data[at : at + taken], self._fin and not self._left))
                at += taken
                continue
            if end - at < _HEAD.size:
                break
            first, second = _HEAD.unpack_from(data, at)
            flags, length = second >> 24, second & MAX_PAYLOAD_BYTES
            if not first >> 31:
                at += _HEAD.size
                self._stream, self._left, self._fin = first, length, bool(flags & _FIN)
                if not length:
                    frames.append(Data(first, b"", self._fin))
                continue
            if first >> 16 & 0x7FFF != _VERSION:
                raise SpdyProtocolError(f"control frame of version {first >> 16 & 0x7FFF}")
            if length > _MAX_CONTROL_BYTES:
                raise SpdyProtocolError(f"control frame of {length} bytes")
            if end - at < _HEAD.size + length:
                break
            body = data[at + _HEAD.size : at + _HEAD.size + length]
            at += _HEAD.size + length
            frame = self._control(first & 0xFFFF, flags, body)
            if frame is not None:
                frames.append(frame)
        self._rest = data[at:]
        return frames

    def _control(self, kind: int, flags: int, body: bytes) -> Frame | None:
        fin = bool(flags & _FIN)
        try:
            if kind == _SYN_STREAM:
                stream, associated = _TWO.unpack_from(body)
                headers = self._unpack(body[10:])
                one_way = bool(flags & _UNIDIRECTIONAL)
                return SynStream(stream & _STREAM_BITS, headers, fin, one_way, associated & _STREAM_BITS, body[8] >> 5)
            if kind in (_SYN_REPLY, _HEADERS):
                stream = _U32.unpack_from(body)[0] & _STREAM_BITS
                headers = self._unpack(body[4:])
                return SynReply(stream, headers, fin) if kind == _SYN_REPLY else Headers(stream, headers, fin)
            if kind == _SETTINGS:
                count = _U32.unpack_from(body)[0]
                if len(body) != 4 + 8 * count:
                    raise SpdyProtocolError("malformed SETTINGS frame")
                values = (_TWO.unpack_from(body, 4 + 8 * index) for index in range(count))
                return Settings(tuple((key >> 24, key & MAX_PAYLOAD_BYTES, value) for key, value in values))
            if kind == _PING:
                return Ping(_U32.unpack_from(body)[0])
            if kind in (_RST_STREAM, _GOAWAY, _WINDOW_UPDATE):
                stream, number = _TWO.unpack_from(body)
                stream &= _STREAM_BITS
                if kind == _RST_STREAM:
                    return RstStream(stream, number)
                return GoAway(stream, number) if kind == _GOAWAY else WindowUpdate(stream, number & _STREAM_BITS)
        except (struct.error, IndexError) as error:
            raise SpdyProtocolError(f"control frame {kind} of {len(body)} bytes is too short") from error
        return None  # a kind we do not know means nothing to us

    def _unpack(self, packed: bytes) -> Pairs:
        try:
            block = self._zlib.decompress(packed, _MAX_CONTROL_BYTES)
        except zlib.error as error:
            raise SpdyProtocolError(f"header block: {error}") from error
        if self._zlib.unconsumed_tail or not block:
            raise SpdyProtocolError("header block is empty or too long")
        at = 4
        pairs: list[tuple[str, str]] = []
        for _ in range(_U32.unpack_from(block)[0]):
            name, at = _text(block, at)
            value, at = _text(block, at)
            pairs += ((name, part) for part in value.split("\0"))
        return tuple(pairs)


def _control(kind: int, flags: int, body: bytes) -> bytes:
    return _HEAD.pack(1 << 31 | _VERSION << 16 | kind, flags << 24 | len(body)) + body


def _text(block: bytes, at: int) -> tuple[str, int]:
    length = _U32.unpack_from(block, at)[0]
    end = at + 4 + length
    if end > len(block):
        raise SpdyProtocolError("header block is cut off")
    return block[at + 4 : end].decode("utf-8", "replace"), end
