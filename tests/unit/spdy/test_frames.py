"""SPDY/3.1 frames: what goes in comes out, however the bytes are cut; and nothing malformed gets through."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.spdy.dictionary import SPDY_DICTIONARY
from shared.spdy.frames import (
    MAX_PAYLOAD_BYTES,
    Data,
    Frame,
    FrameDecoder,
    FrameEncoder,
    GoAway,
    Headers,
    Ping,
    RstStream,
    Settings,
    SpdyProtocolError,
    SynReply,
    SynStream,
    WindowUpdate,
)

streams = st.integers(1, 0x7FFFFFFF)
words = st.integers(0, 0xFFFFFFFF)
names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
headers = st.dictionaries(names, values, max_size=5).map(lambda pairs: tuple(pairs.items()))
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(SynStream, streams, headers, st.booleans(), st.booleans(), st.integers(0, 9), st.integers(0, 7)),
    st.builds(SynReply, streams, headers, st.booleans()),
    st.builds(RstStream, streams, words),
    st.builds(Settings, st.lists(st.tuples(st.integers(0, 255), st.integers(0, MAX_PAYLOAD_BYTES), words)).map(tuple)),
    st.builds(Ping, words),
    st.builds(GoAway, streams, words),
    st.builds(Headers, streams, headers, st.booleans()),
    st.builds(WindowUpdate, streams, st.integers(0, 0x7FFFFFFF)),
    st.builds(Data, streams, st.binary(max_size=300), st.booleans()),
)


def joined(received: list[Frame]) -> list[Frame]:
    """Pieces of data frames put together where one stream's pieces follow one another without an end."""
    joined: list[Frame] = []
    for frame in received:
        last = joined[-1] if joined else None
        if isinstance(frame, Data) and isinstance(last, Data) and last.stream == frame.stream and not last.fin:
            joined[-1] = Data(frame.stream, last.payload + frame.payload, frame.fin)
        else:
            joined.append(frame)
    return joined


@given(st.lists(frames, max_size=8), st.integers(1, 50))
def test_what_is_encoded_is_decoded_however_it_is_cut(sent: list[Frame], size: int) -> None:
    encoder, decoder = FrameEncoder(), FrameDecoder()
    raw = b"".join(encoder.encode(frame) for frame in sent)
    received = [frame for start in range(0, len(raw), size) for frame in decoder.feed(raw[start : start + size])]
    assert joined(received) == joined(sent)


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_protocol_error(raw: bytes) -> None:
    try:
        FrameDecoder().feed(raw)
    except SpdyProtocolError:
        pass


def test_the_dictionary_is_the_one_of_the_protocol() -> None:
    assert (len(SPDY_DICTIONARY), zlib.adler32(SPDY_DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_the_layout_of_frames() -> None:
    encoder = FrameEncoder()
    assert encoder.encode(Data(5, b"ab", fin=True)) == b"\0\0\0\5\1\0\0\2ab"
    assert encoder.encode(Ping(3)) == b"\x80\3\0\6\0\0\0\4\0\0\0\3"
    assert encoder.encode(RstStream(1, 5)) == b"\x80\3\0\3\0\0\0\x08\0\0\0\1\0\0\0\5"
    opened = encoder.encode(SynStream(1, (("streamType", "error"),)))
    assert opened[:4] == b"\x80\3\0\1"
    unpacked = zlib.decompressobj(zdict=SPDY_DICTIONARY).decompress(opened[18:])
    assert unpacked == b"\0\0\0\1\0\0\0\x0astreamtype\0\0\0\5error"


def test_a_large_data_frame_is_handed_on_as_it_comes() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(struct.pack("!II", 1, 1 << 24 | 10) + b"abc") == [Data(1, b"abc")]
    assert decoder.feed(b"defghij") == [Data(1, b"defghij", fin=True)]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\2\0\6\0\0\0\4\0\0\0\3",  # SPDY/2
        b"\x80\3\0\6\0\xff\xff\xff",  # a control frame of 16 MiB
        b"\x80\3\0\6\0\0\0\2\0\0",  # too short for a ping
        b"\x80\3\0\2\0\0\0\6\0\0\0\1xx",  # headers that are no zlib
        b"\x80\3\0\4\0\0\0\4\0\0\0\7",  # seven settings without any
        b"HTTP/1.1 400 Bad Request\r\n\r\n".replace(b"H", b"\xc8"),
    ],
)
def test_what_is_no_spdy_is_refused(raw: bytes) -> None:
    with pytest.raises(SpdyProtocolError):
        FrameDecoder().feed(raw)


def test_headers_that_unpack_to_too_much_are_refused() -> None:
    encoder = zlib.compressobj(zdict=SPDY_DICTIONARY)
    packed = encoder.compress(b"\0" * (4 << 20)) + encoder.flush(zlib.Z_SYNC_FLUSH)
    body = b"\0\0\0\1" + packed
    with pytest.raises(SpdyProtocolError):
        FrameDecoder().feed(b"\x80\3\0\2" + struct.pack("!I", len(body)) + body)


def test_too_much_for_one_frame() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        FrameEncoder().encode(Data(1, bytes(MAX_PAYLOAD_BYTES + 1)))
