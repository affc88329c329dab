"""The bounds of one HTTP/2 connection, byte by byte: windows, heads, and what a server cannot make us keep."""

import asyncio
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from shared.kube import http2_session
from shared.kube.failures import BrokenStreamError
from shared.kube.http2_connection import Http2Connection
from shared.kube.http2_session import (
    STREAM_WINDOW_BYTES,
    AnswerData,
    AnswerHead,
    Http2Error,
    Http2Session,
    StreamBroken,
    StreamEnd,
)

REQUEST = [(":method", "GET"), (":scheme", "https"), (":authority", "h"), (":path", "/")]


class Pair:
    """A session and the server's side of it."""

    def __init__(self) -> None:
        self.session, self.server = Http2Session(), H2Connection(H2Configuration(client_side=False))
        self.server.initiate_connection()
        self.pass_on()

    def pass_on(self) -> list[object]:
        """Bytes both ways, until neither has more; what changed for the session."""
        changes: list[object] = []
        while True:
            to_server, to_session = self.session.data_to_send(), self.server.data_to_send()
            if not to_server and not to_session:
                return changes
            self.server.receive_data(to_server)
            changes += self.session.receive(to_session)

    def fill(self, stream: int) -> int:
        """The server sends as much as it may."""
        sent = 0
        while size := min(self.server.local_flow_control_window(stream), 16384):
            self.server.send_data(stream, bytes(size))
            sent += size
        return sent

    def answered(self) -> int:
        stream = self.session.open(REQUEST)
        self.pass_on()
        self.server.send_headers(stream, [(":status", "200"), ("retry-after", "7")])
        assert self.pass_on() == [AnswerHead(stream, 200, "7")]
        return stream


def test_no_request_before_the_settings_and_no_more_than_they_permit() -> None:
    assert not Http2Session().has_room
    pair = Pair()
    pair.server.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 2})
    pair.pass_on()
    first, _ = pair.answered(), pair.answered()
    room = [pair.session.has_room]
    pair.server.end_stream(first)
    assert pair.pass_on() == [StreamEnd(first)]
    assert [*room, pair.session.has_room] == [False, True]
    pair.server.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 100_000})
    pair.pass_on()
    assert pair.session.permitted == http2_session.MAX_STREAMS


def test_a_window_opens_only_as_its_reader_reads() -> None:
    pair = Pair()
    stream = pair.answered()
    assert pair.fill(stream) == STREAM_WINDOW_BYTES
    size = sum(change.size for change in pair.pass_on() if isinstance(change, AnswerData))
    assert pair.fill(stream) == 0
    pair.session.release(stream, size)
    pair.pass_on()
    assert pair.fill(stream) == STREAM_WINDOW_BYTES


def test_streams_that_are_reset_unread_leave_the_window_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_session, "_CONNECTION_WINDOW_BYTES", 4 * STREAM_WINDOW_BYTES)
    pair = Pair()
    for _ in range(20):
        stream = pair.answered()
        assert pair.fill(stream) == STREAM_WINDOW_BYTES
        size = sum(change.size for change in pair.pass_on() if isinstance(change, AnswerData))
        pair.session.reset(stream)
        pair.session.release(stream, size)
        pair.pass_on()


@pytest.mark.long
def test_all_streams_full_still_leave_room_for_another() -> None:
    pair = Pair()
    pair.server.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 250})
    pair.pass_on()
    for _ in range(250):
        assert pair.fill(pair.answered()) == STREAM_WINDOW_BYTES
        pair.pass_on()


def test_a_server_beyond_the_window_breaks_the_connection() -> None:
    pair = Pair()
    stream = pair.answered()
    pair.fill(stream)
    pair.pass_on()
    frame = (1).to_bytes(3, "big") + b"\x00\x00" + stream.to_bytes(4, "big") + b"x"
    with pytest.raises(Http2Error):
        list(pair.session.receive(frame))


def test_a_head_beyond_its_bound_breaks_the_connection() -> None:
    pair = Pair()
    stream = pair.session.open(REQUEST)
    pair.pass_on()
    pair.server.send_headers(stream, [(":status", "200"), *((f"a{n}", "x" * 1000) for n in range(80))])
    with pytest.raises(Http2Error):
        pair.pass_on()


@pytest.mark.parametrize("status", ["", "20", "abc", "2000"])
def test_a_head_without_a_status_breaks_its_stream_alone(status: str) -> None:
    pair = Pair()
    other, stream = pair.answered(), pair.session.open(REQUEST)
    pair.pass_on()
    pair.server.config.validate_outbound_headers = False
    pair.server.send_headers(stream, [(":status", status)])
    [broken] = pair.pass_on()
    assert isinstance(broken, StreamBroken) and (broken.stream, broken.again) == (stream, False)
    pair.server.end_stream(other)
    assert pair.pass_on() == [StreamEnd(other)]


def test_only_what_the_server_did_not_process_is_sent_again() -> None:
    pair = Pair()
    streams = [pair.answered() for _ in range(3)]
    pair.server.reset_stream(streams[0], ErrorCodes.REFUSED_STREAM)
    pair.server.reset_stream(streams[1], ErrorCodes.INTERNAL_ERROR)
    assert [(one.stream, one.again) for one in pair.pass_on() if isinstance(one, StreamBroken)] == [
        (streams[0], True),
        (streams[1], False),
    ]


class FakeTransport:
    """Of a server that agreed on HTTP/2 and reads nothing."""

    def __init__(self) -> None:
        self.written, self.is_aborted = 0, False

    def get_extra_info(self, _: str) -> "FakeTransport":
        return self

    def selected_alpn_protocol(self) -> str:
        return "h2"

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def get_write_buffer_size(self) -> int:
        return self.written

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.long
async def test_a_server_that_reads_nothing_is_left_before_answers_to_it_pile_up() -> None:
    ended: list[Http2Connection] = []
    connection, transport = Http2Connection(ended.append), FakeTransport()
    made: Any = transport
    connection.connection_made(made)
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    connection.data_received(server.data_to_send())
    answer = connection.request(REQUEST)
    waiting = asyncio.create_task(answer.head())
    await asyncio.sleep(0)
    for _ in range(1000):
        for _ in range(100):
            server.ping(bytes(8))
        connection.data_received(server.data_to_send())
        if transport.is_aborted:
            break
    assert ended == [connection] and transport.written < 2 * 2**20
    with pytest.raises(BrokenStreamError, match="does not read"):
        await waiting
