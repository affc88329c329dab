"""One HTTP/2 exchange, byte by byte: what is sent in return, and what is refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.http_get.http2 import (
    MAX_ANSWER_BYTES,
    MAX_FRAMES,
    MAX_HEADER_BYTES,
    Exchange,
    ProtocolError,
    StreamRefusedError,
)
from shared.http_get.http2_frames import error_name
from tests.unit.http_get.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PRIORITY,
    SETTINGS,
    Frame,
    block,
    fields_of,
    frame,
)

HEAD = block((":status", "200"), ("content-type", "text/plain"), ("content-type", "again"))
ANSWER = (
    SETTINGS
    + frame(Frame.HEADERS, END_HEADERS, HEAD)
    + frame(Frame.DATA, 0, b"hel")
    + frame(Frame.DATA, 0, b"lo")
    + frame(Frame.HEADERS, END_HEADERS | END_STREAM, block(("grpc-status", "0")))
)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REQUEST = [(":method", "GET"), (":scheme", "https"), (":authority", "h"), (":path", "/")]


def asked() -> Exchange:
    """An exchange whose request is under way."""
    exchange = Exchange()
    exchange.open(REQUEST)
    return exchange


def frames_of(sent: bytes) -> list[tuple[int, int, int, bytes]]:
    """(type, flags, stream, payload) of each frame behind the preface."""
    assert sent.startswith(PREFACE)
    sent, frames = sent[len(PREFACE) :], []
    while sent:
        length = int.from_bytes(sent[:3], "big")
        assert length <= 16384
        frames.append((sent[3], sent[4], int.from_bytes(sent[5:9], "big"), sent[9 : 9 + length]))
        sent = sent[9 + length :]
    return frames


def test_the_request_opens_the_connection_and_its_one_stream() -> None:
    (kind, flags, stream, settings), head = frames_of(Exchange().open(REQUEST))
    assert (kind, flags, stream) == (Frame.SETTINGS, 0, 0)
    assert struct.pack(">HI", 2, 0) in settings  # no push
    assert struct.pack(">HI", 6, MAX_HEADER_BYTES) in settings
    assert head[:3] == (Frame.HEADERS, END_HEADERS | END_STREAM, 1) and fields_of(head[3]) == REQUEST


def test_a_body_ends_the_stream_in_place_of_the_headers() -> None:
    _, head, *data = frames_of(Exchange().open(REQUEST, b"x" * 20_000))
    assert head[:3] == (Frame.HEADERS, END_HEADERS, 1)
    assert [(kind, len(payload)) for kind, _, _, payload in data] == [(Frame.DATA, 16384), (Frame.DATA, 3616)]
    assert [bool(flags & END_STREAM) for _, flags, _, _ in data] == [False] * (len(data) - 1) + [True]


def test_a_body_larger_than_the_first_window_is_refused() -> None:
    with pytest.raises(ProtocolError, match="flow control window"):
        Exchange().open(REQUEST, b"x" * 70_000)


@pytest.mark.long
def test_headers_too_long_for_one_frame_go_on_in_others() -> None:
    _, *frames = frames_of(Exchange().open([*REQUEST, ("a", "\0" * 40_000)]))
    assert [kind for kind, *_ in frames] == [Frame.HEADERS] + [Frame.CONTINUATION] * (len(frames) - 1)
    assert len(frames) > 1 and frames[-1][1] == END_HEADERS and frames[0][1] == END_STREAM


def test_headers_that_belong_to_a_connection_are_not_sent_and_odd_ones_are() -> None:
    odd = [("connection", "close"), ("keep-alive", "1"), ("te", "gzip"), ("x-odd", "caf\udce9 é")]
    _, head = frames_of(Exchange().open([*REQUEST, *odd]))
    assert fields_of(head[3])[len(REQUEST) :] == [("te", "gzip"), ("x-odd", "caf? é")]


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_an_answer_in_pieces_of_any_size(size: int) -> None:
    exchange, replies = asked(), b""
    for at in range(0, len(ANSWER), size):
        assert not exchange.ended
        replies += exchange.receive(ANSWER[at : at + size])
    assert exchange.ended and exchange.ready and bytes(exchange.body) == b"hello"
    assert exchange.headers == {":status": "200", "content-type": "text/plain"}
    assert exchange.trailers == {"grpc-status": "0"}
    assert replies in (b"", frame(Frame.SETTINGS, ACK, stream=0))


def test_pings_and_settings_are_acknowledged_and_strange_frames_passed_over() -> None:
    exchange = asked()
    assert exchange.receive(SETTINGS) == frame(Frame.SETTINGS, ACK, stream=0)
    assert exchange.receive(frame(Frame.PING, 0, b"12345678", 0)) == frame(Frame.PING, ACK, b"12345678", 0)
    assert exchange.receive(frame(Frame.PING, ACK, b"12345678", 0) + frame(8, 0, b"1234", 0) + frame(77, 3)) == b""
    assert exchange.receive(frame(Frame.SETTINGS, ACK, stream=0)) == b""


def test_padding_priorities_continuations_and_informational_answers() -> None:
    exchange = asked()
    exchange.receive(SETTINGS + frame(Frame.HEADERS, END_HEADERS, block((":status", "103"))))
    assert not exchange.answered
    padded = bytes([3]) + b"\0" * 5 + HEAD[:4] + b"\0" * 3
    exchange.receive(frame(Frame.HEADERS, PADDED | PRIORITY, padded) + frame(Frame.CONTINUATION, END_HEADERS, HEAD[4:]))
    assert exchange.headers[":status"] == "200"
    exchange.receive(frame(Frame.DATA, PADDED | END_STREAM, b"\x02hi\0\0"))
    assert exchange.ended and exchange.body == b"hi"


def test_headers_alone_are_an_answer_with_its_trailers() -> None:
    exchange = asked()
    alone = block((":status", "200"), ("grpc-status", "12"))
    exchange.receive(SETTINGS + frame(Frame.HEADERS, END_HEADERS | END_STREAM, alone))
    assert exchange.ended and exchange.trailers["grpc-status"] == "12"


def test_a_stream_that_the_server_breaks_off() -> None:
    exchange = asked()
    with pytest.raises(StreamRefusedError) as refused:
        exchange.receive(SETTINGS + frame(Frame.RST_STREAM, 0, b"\0\0\0\x07"))
    assert refused.value.code == 7 and "REFUSED_STREAM" in str(refused.value)
    assert error_name(99) == "unknown error code 99"


def test_an_answer_that_is_no_http2_is_an_error_that_names_it(subtests: pytest.Subtests) -> None:
    for answer in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(Frame.HEADERS, END_HEADERS, HEAD),  # before SETTINGS
        SETTINGS + b"\x00\x40\x01\x00\x00\x00\x00\x00\x01",  # larger than any frame we allow
        SETTINGS + frame(Frame.GOAWAY, 0, struct.pack(">II", 0, 11), 0),
        SETTINGS + frame(Frame.HEADERS, 0, HEAD) + frame(Frame.DATA, 0, b""),
        SETTINGS + frame(Frame.CONTINUATION, END_HEADERS, HEAD),
        SETTINGS + frame(Frame.HEADERS, END_HEADERS, b"\xbe"),
        SETTINGS + frame(Frame.HEADERS, END_HEADERS, HEAD) + frame(Frame.DATA, PADDED, b"\x05abc"),
        SETTINGS + frame(Frame.DATA, 0, b"x", 3),  # of a stream that was not opened
        SETTINGS + frame(5, END_HEADERS, struct.pack(">I", 2) + HEAD),  # a push
        SETTINGS + frame(Frame.GOAWAY, 0, b"", 0),
        frame(Frame.SETTINGS, 0, struct.pack(">HI", 5, 1), 0),  # frames of one byte
        SETTINGS + frame(Frame.HEADERS, END_HEADERS, block((":status", "200"), *[("x" * 99, "y" * 99)] * 400)),
        SETTINGS + frame(Frame.HEADERS, 0, HEAD) + frame(Frame.CONTINUATION, 0, b"") * 100,
    ]:
        with subtests.test(f"{answer!r:.80}"), pytest.raises(ProtocolError):
            asked().receive(answer)


def test_a_server_that_goes_away_after_our_stream_is_let_finish() -> None:
    exchange = asked()
    exchange.receive(SETTINGS + frame(Frame.GOAWAY, 0, struct.pack(">II", 1, 0), 0) + ANSWER[len(SETTINGS) :])
    assert exchange.ended


def test_headers_that_other_clients_of_http2_refuse_are_taken() -> None:
    exchange = asked()
    odd = block((":status", "200"), ("connection", "keep-alive"), ("X-Upper", "\x01"))
    exchange.receive(SETTINGS + frame(Frame.HEADERS, END_HEADERS | END_STREAM, odd))
    assert exchange.ended and exchange.headers["connection"] == "keep-alive"


def test_a_body_beyond_the_first_window_is_given_room_up_to_the_limit() -> None:
    exchange, given = asked(), b""
    exchange.receive(SETTINGS + frame(Frame.HEADERS, END_HEADERS, HEAD))
    for _ in range(15):
        given += exchange.receive(frame(Frame.DATA, 0, b"x" * 16000))
    assert len(exchange.body) == 240_000 and given.count(b"\x08\0\0\0\0\x01") > 0  # WINDOW_UPDATE of the stream
    with pytest.raises(ProtocolError, match="too large"):
        for _ in range(2):
            exchange.receive(frame(Frame.DATA, 0, b"x" * 16000))
    assert len(exchange.body) < MAX_ANSWER_BYTES


@pytest.mark.parametrize(
    ("unit", "problem"),
    [
        (SETTINGS, "too many frames"),
        (frame(Frame.PING, 0, b"12345678", 0), "too many frames"),
        (frame(Frame.DATA, 0), "too many frames"),
        (frame(0x77, 0), "too many frames"),
        (frame(Frame.HEADERS, END_HEADERS, block((":status", "103"), ("link", "x" * 800))), "too many header bytes"),
    ],
)
def test_a_flood_of_frames_is_broken_off(unit: bytes, problem: str) -> None:
    exchange = asked()
    exchange.receive(SETTINGS)
    if unit[3] == Frame.DATA:
        exchange.receive(frame(Frame.HEADERS, END_HEADERS, HEAD))
    with pytest.raises(ProtocolError, match=problem):
        for _ in range(MAX_ANSWER_BYTES // len(unit) - 10):
            exchange.receive(unit)


def test_a_body_of_a_thousand_frames_is_read() -> None:
    exchange = asked()
    exchange.receive(SETTINGS + frame(Frame.HEADERS, END_HEADERS, HEAD))
    for _ in range(MAX_FRAMES // 4):
        exchange.receive(frame(Frame.DATA, 0, b"x"))
    exchange.receive(frame(Frame.DATA, END_STREAM))
    assert exchange.ended and exchange.body == b"x" * (MAX_FRAMES // 4)


BLOCKS = st.sampled_from([HEAD, HEAD[:4], HEAD[4:], block((":status", "103")), block(("", "")), block((":status", ""))])
FRAMES = st.builds(
    frame,
    st.integers(0, 13) | st.sampled_from([Frame.HEADERS, Frame.DATA, Frame.CONTINUATION]),
    st.sampled_from([0, END_HEADERS, END_STREAM, END_HEADERS | END_STREAM]) | st.integers(0, 255),
    st.binary(max_size=20) | BLOCKS,
    st.sampled_from([1, 1, 1, 0, 2, 3, 0x80000001]),
)


@given(st.lists(FRAMES | st.binary(max_size=60), max_size=8), st.booleans(), st.booleans())
def test_nothing_else_is_raised(noise: list[bytes], opened: bool, in_one: bool) -> None:
    exchange, answer = asked(), [SETTINGS * opened, *noise]
    try:
        for data in [b"".join(answer)] if in_one else answer:
            if not exchange.ended:
                exchange.receive(data)
    except (ProtocolError, StreamRefusedError):
        pass
