"""Splits the bytes of an HTTP/2 server into frames before the library h2 gets them. Pure.

h2 checks the length of a frame only when it has all of it, does not require SETTINGS first, and accepts no frame after
a GOAWAY, although the streams below its last id continue. Here a frame is refused by its head, and GOAWAY is parsed.
"""

from h2.errors import ErrorCodes
from hyperframe.frame import Frame, GoAwayFrame, SettingsFrame
from msgspec import Struct

MAX_FRAME_BYTES = 16384  # the least that every endpoint must accept, and what servers send
FRAME_TYPE_INDEX = 3  # of the byte with a frame's type
_HEAD_BYTES = 9


class FrameError(ValueError):
    """The bytes are not HTTP/2, or a frame is larger than MAX_FRAME_BYTES."""


class GoAway(Struct, frozen=True):
    """The server accepts no new streams; those above `last_stream` were not processed. `code`: the HTTP/2 error."""

    last_stream: int
    code: int


class FrameSplitter:
    """Keeps at most one incomplete frame, so no more than MAX_FRAME_BYTES bytes after the last `next`."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._began = False  # the server's first SETTINGS came

    def add(self, data: bytes) -> None:
        """Append received bytes."""
        self._waiting += data

    def next(self) -> bytes | GoAway | None:
        """Return the next frame with its head, None while it is incomplete. Raises FrameError; HyperframeError for a
        malformed GOAWAY."""
        if len(self._waiting) < _HEAD_BYTES:
            return None
        length = int.from_bytes(self._waiting[:3], "big")
        is_settings = self._waiting[FRAME_TYPE_INDEX] == SettingsFrame.type
        if length > MAX_FRAME_BYTES or not (self._began or is_settings):
            raise FrameError("error reading server preface: http2: frame too large or not a SETTINGS frame")
        if len(self._waiting) < _HEAD_BYTES + length:
            return None
        frame = bytes(self._waiting[: _HEAD_BYTES + length])
        del self._waiting[: _HEAD_BYTES + length]
        self._began = True
        return _go_away(frame) if frame[FRAME_TYPE_INDEX] == GoAwayFrame.type else frame


def error_name(code: int) -> str:
    """Return HTTP/2's name of an error code ("REFUSED_STREAM")."""
    try:
        return ErrorCodes(code).name
    except ValueError:
        return f"unknown error code {code}"


def _go_away(data: bytes) -> GoAway:
    frame, _ = Frame.parse_frame_header(memoryview(data[:_HEAD_BYTES]))
    frame.parse_body(memoryview(data[_HEAD_BYTES:]))
    assert isinstance(frame, GoAwayFrame)
    return GoAway(frame.last_stream_id, frame.error_code)
