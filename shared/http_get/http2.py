"""One request over one HTTP/2 connection, the client's side: takes received bytes, returns bytes to send. Pure.

The library h2 has the protocol. This selects its events, and refuses answers larger than a probe or hook may have, in
bytes and in frames: h2 takes some 15 µs for a frame, however short.
"""

from collections.abc import Iterable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import ContinuationFrame, HeadersFrame, PushPromiseFrame

from shared.http_get.http2_frames import (
    FRAME_TYPE_INDEX,
    MAX_FRAME_BYTES,
    FrameError,
    FrameSplitter,
    GoAway,
    error_name,
)

Headers = list[tuple[str, str]]

MAX_ANSWER_BYTES = 256 * 1024  # of one answer, frames included
MAX_HEADER_BYTES = 64 * 1024  # of one decoded header list, and of all encoded ones of an answer together
MAX_FRAMES = 4096  # of one answer, of all types
READ_BYTES = 2 * 1024  # that a caller gives to `receive` between two turns of the event loop: at most 227 frames
_STREAM = 1
_HEADER_FRAMES = frozenset({HeadersFrame.type, PushPromiseFrame.type, ContinuationFrame.type})
# Headers are not checked beyond HTTP/2's framing: Go's client accepts unusual ones, too.
_CONFIG = H2Configuration(validate_outbound_headers=False, validate_inbound_headers=False)
_SETTINGS = {
    SettingCodes.ENABLE_PUSH: 0,
    SettingCodes.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
    SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
}


class ProtocolError(ValueError):
    """The received bytes are not HTTP/2, or too many; the text is the reason."""


class StreamRefusedError(ValueError):
    """The server ended the stream with this error code (0 to 13)."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"stream terminated by RST_STREAM with error code: {error_name(code)}")


class Exchange:
    """The state of connection and stream; `open` comes first, and then `receive` alone changes it."""

    def __init__(self) -> None:
        self.ready = False  # the server has sent its SETTINGS
        self.headers: dict[str, str] = {}  # of the answer; of a repeated header the first counts
        self.trailers: dict[str, str] = {}
        self.body = bytearray()
        self.answered = False  # the headers are complete
        self.ended = False  # the answer is complete
        self._connection = H2Connection(_CONFIG)
        self._connection.local_settings = Settings(client=True, initial_values=_SETTINGS)
        self._frames = FrameSplitter()
        self._received = self._header_bytes = self._frame_count = 0

    def open(self, headers: Headers, body: bytes | None = None) -> bytes:
        """Return the first bytes of the connection: the preface and the request; `body` None = the request has none.
        Raises ProtocolError for a body of more than 64 KiB."""
        connection = self._connection
        connection.initiate_connection()
        coded = [(name.encode("latin-1", "replace"), value.encode("utf-8", "replace")) for name, value in headers]
        try:
            connection.send_headers(_STREAM, coded, end_stream=body is None)
            if body is not None:
                while len(body) > MAX_FRAME_BYTES:
                    connection.send_data(_STREAM, body[:MAX_FRAME_BYTES])
                    body = body[MAX_FRAME_BYTES:]
                connection.send_data(_STREAM, body, end_stream=True)
        except H2Error as error:
            raise ProtocolError(f"http2: {error}") from None
        return connection.data_to_send()

    def receive(self, data: bytes) -> bytes:
        """Take received bytes; return the bytes to send. Raises ProtocolError, StreamRefusedError."""
        self._received += len(data)
        if self._received > MAX_ANSWER_BYTES:
            raise ProtocolError("http2: the answer is too large")
        self._frames.add(data)
        try:
            while not self.ended and (frame := self._frames.next()) is not None:
                self._take_frame(frame)
        except FrameError as error:
            raise ProtocolError(str(error)) from None
        except (H2Error, HyperframeError) as error:
            raise ProtocolError(f"http2: {error}") from None
        return b"" if self.ended else self._connection.data_to_send()

    def _take_frame(self, frame: bytes | GoAway) -> None:
        self._frame_count += 1
        if self._frame_count > MAX_FRAMES:
            raise ProtocolError("http2: the answer has too many frames")
        if not isinstance(frame, GoAway):
            if frame[FRAME_TYPE_INDEX] in _HEADER_FRAMES:
                self._header_bytes += len(frame)
                if self._header_bytes > MAX_HEADER_BYTES:
                    raise ProtocolError("http2: the answer has too many header bytes")
            self._take_events(self._connection.receive_data(frame))
            self.ready = True
        elif frame.last_stream < _STREAM:  # else our stream was accepted, and continues
            name = error_name(frame.code)
            raise ProtocolError(f"http2: server sent GOAWAY and closed the connection; ErrCode={name}")

    def _take_events(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case ResponseReceived():
                    self.headers, self.answered = _fields(event.headers), True
                    if event.stream_ended:
                        self.trailers = self.headers
                case TrailersReceived():
                    self.trailers = _fields(event.headers)
                case DataReceived():
                    self.body += event.data
                    self._connection.acknowledge_received_data(event.flow_controlled_length, _STREAM)
                case StreamReset():
                    raise StreamRefusedError(int(event.error_code))
                case StreamEnded():
                    self.ended = True


def _fields(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in headers:
        fields.setdefault(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
    return fields
