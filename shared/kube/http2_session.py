"""The client's side of one HTTP/2 connection with many streams: bytes in, changes of streams out. Pure.

The protocol is the library h2. This bounds what a server may send, keeps streams apart and decides which failed request
may be sent again on another connection.
"""

from collections.abc import Iterator, Sequence

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.exceptions import HyperframeError
from msgspec import Struct

from shared.http_get.http2_frames import MAX_FRAME_BYTES, FrameError, FrameSplitter, GoAway, error_name

# Bytes that a server may send on one stream before its reader has taken them. A line of a watch may be longer: its
# reader takes the pieces. The connection's window is never the narrower one, so that a stream that is not read holds
# back no other one.
STREAM_WINDOW_BYTES = 65_535
MAX_STREAMS = 250  # on one connection, where the server permits more
_CONNECTION_WINDOW_BYTES = 2 * MAX_STREAMS * STREAM_WINDOW_BYTES
_MAX_HEADER_BYTES = 64 * 1024  # of the header of one answer
_CONFIG = H2Configuration(validate_inbound_headers=False)  # only the status and Retry-After are read
_SETTINGS = {
    SettingCodes.ENABLE_PUSH: 0,
    SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
    SettingCodes.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
    SettingCodes.MAX_HEADER_LIST_SIZE: _MAX_HEADER_BYTES,
}


class Http2Error(Exception):
    """The server violated HTTP/2 or a limit: the connection cannot be used any longer."""


class AnswerHead(Struct, frozen=True):
    """The head of an answer came. `retry_after`: that header as it is."""

    stream: int
    status: int
    retry_after: str | None


class AnswerData(Struct, frozen=True):
    """A piece of an answer's body. `size`: the bytes to hand to `release` once the reader has taken it."""

    stream: int
    data: bytes
    size: int


class StreamEnd(Struct, frozen=True):
    """The answer is complete."""

    stream: int


class StreamBroken(Struct, frozen=True):
    """The stream ended early. `again`: the server did not process the request, it may be sent again elsewhere.
    `refused`: the server has too much to do."""

    stream: int
    reason: str
    again: bool
    refused: bool = False


Change = AnswerHead | AnswerData | StreamEnd | StreamBroken


class _Connection(H2Connection):
    MAX_CLOSED_STREAMS = 1024  # that h2 remembers: frames of one may be under way still when we reset it


class Http2Session:
    """Send what `data_to_send` returns after each call."""

    def __init__(self) -> None:
        self.ready = False  # the server's settings came: requests may be sent
        self.draining = False  # the server accepts no new streams
        self._open: set[int] = set()
        self._frames = FrameSplitter()
        self._connection = _Connection(_CONFIG)
        self._connection.local_settings = Settings(client=True, initial_values=_SETTINGS)
        self._connection.initiate_connection()
        self._connection.increment_flow_control_window(_CONNECTION_WINDOW_BYTES - 65_535)

    @property
    def permitted(self) -> int:
        """The number of streams that may be open at once."""
        return min(self._connection.remote_settings.max_concurrent_streams, MAX_STREAMS)

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent now."""
        return self.ready and not self.draining and len(self._open) < self.permitted

    def data_to_send(self) -> bytes:
        """Return the bytes to write to the connection, often none."""
        return self._connection.data_to_send()

    def open(self, fields: Sequence[tuple[str, str]]) -> int:
        """Send a request without a body; return the number of its stream. Requires `has_room`. Raises Http2Error."""
        try:
            number = self._connection.get_next_available_stream_id()
            self._connection.send_headers(number, fields, end_stream=True)
        except H2Error as error:
            raise Http2Error(str(error)) from None
        self._open.add(number)
        return number

    def release(self, stream: int, size: int) -> None:
        """Take in that the reader has taken `size` bytes of AnswerData, so that the server may send more."""
        self._connection.acknowledge_received_data(size, stream)

    def reset(self, stream: int) -> None:
        """Reset the stream with this number, unless the server has ended it."""
        if stream in self._open:
            self._open.discard(stream)
            self._connection.reset_stream(stream, ErrorCodes.CANCEL)

    def ping(self) -> None:
        """Send a PING, which the server must answer."""
        self._connection.ping(bytes(8))

    def receive(self, data: bytes) -> Iterator[Change]:
        """Take received bytes; return the changes of streams. Raises Http2Error; `data_to_send` then has the GOAWAY."""
        self._frames.add(data)
        try:
            while (frame := self._frames.next()) is not None:
                if isinstance(frame, GoAway):
                    yield from self._go_away(frame)
                    continue
                for event in self._connection.receive_data(frame):
                    yield from self._change(event)
                self.ready = True
        except (FrameError, H2Error, HyperframeError) as error:
            raise Http2Error(str(error)) from None

    def _change(self, event: Event) -> Iterator[Change]:
        stream = getattr(event, "stream_id", None)
        if stream not in self._open:
            return
        match event:
            case ResponseReceived():
                yield self._head(stream, event)
            case DataReceived():
                if event.data:
                    yield AnswerData(stream, event.data, event.flow_controlled_length)
                else:  # padding
                    self.release(stream, event.flow_controlled_length)
            case StreamEnded():
                self._open.discard(stream)
                yield StreamEnd(stream)
            case StreamReset():
                self._open.discard(stream)
                code = int(event.error_code)
                reason = f"the server reset the stream: {error_name(code)}"
                refused = code in (ErrorCodes.REFUSED_STREAM, ErrorCodes.ENHANCE_YOUR_CALM)
                yield StreamBroken(stream, reason, again=code == ErrorCodes.REFUSED_STREAM, refused=refused)

    def _head(self, stream: int, event: ResponseReceived) -> Change:
        fields: dict[bytes, bytes] = {}
        for name, value in event.headers:
            fields.setdefault(name, value)
        status, retry_after = fields.get(b":status", b""), fields.get(b"retry-after")
        if not (len(status) == 3 and status.isdigit()):
            self.reset(stream)
            return StreamBroken(stream, "the answer is not HTTP: it has no status", again=False)
        return AnswerHead(stream, int(status), None if retry_after is None else retry_after.decode("latin-1"))

    def _go_away(self, frame: GoAway) -> Iterator[Change]:
        self.draining = True
        for stream in sorted(number for number in self._open if number > frame.last_stream):
            self._open.discard(stream)
            refused = frame.code == ErrorCodes.ENHANCE_YOUR_CALM
            yield StreamBroken(stream, f"the server goes away: {error_name(frame.code)}", again=True, refused=refused)
