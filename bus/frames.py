"""Forms and reads the frames on the wire: updates, beats, requests and answers. Pure: no sockets, no state.

A head is a small JSON object with the protocol version in `v`; a body is a frame of its own, which is decoded by code
that knows its type. PROTOCOL.md, part "Frames", is the specification of this module.

A large update is cut into pieces, [topic, head of the update, part of the value, b"<its number from 1>/<how many>"]:
ZeroMQ limits what a follower has not read by the number of messages, and pieces make that a number of bytes."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from bus import codec
from bus.messages.beat import Beat

H = TypeVar("H")

BEATS_TOPIC = b"beats\0"
MAX_PIECE_BYTES = 32 * 1024
MAX_PIECES = 1024  # of one update; a value has at most 16 MiB
_PIECE_FRAMES = 4


class UpdateKind(StrEnum):
    """What one update does to the stream."""

    PUT = "put"
    DELETE = "delete"
    COMPLETE = "complete"


class UpdateHead(Struct, frozen=True, kw_only=True):
    """Second frame of an update."""

    v: str
    incarnation: str
    number: int
    kind: UpdateKind
    key: str = ""
    cause: str = ""
    trace: str = ""


class Update(Struct, frozen=True, kw_only=True):
    """One numbered change of one stream; `value` is its undecoded JSON, empty unless `kind` is put."""

    stream: str
    incarnation: str
    number: int
    kind: UpdateKind
    key: str = ""
    value: bytes = b""
    cause: str = ""
    trace: str = ""  # traceparent of the span that published it


class RequestHead(Struct, frozen=True, kw_only=True):
    """First frame of a request; (client, id) names it for ever, however often it is sent."""

    v: str
    client: str  # "<service>/<incarnation>"
    id: int
    type: str  # class name in bus/messages
    deadline: float  # CLOCK_MONOTONIC seconds; not worth answering afterwards
    trace: str = ""  # traceparent of the span that waits for the answer
    taken: int = -1  # bytes of the bodies of all answers that the client has taken from this service; -1 = not counted


class AnswerHead(Struct, frozen=True, kw_only=True):
    """First frame of an answer. `error`: the line of a refusal, which has no body. `unknown`: answers a reminder of
    which this process has no request; the caller then sends the request with its body."""

    v: str
    id: int
    type: str = ""
    error: str = ""
    unknown: bool = False


class _Version(Struct, frozen=True):
    v: str


Frames = tuple[bytes, ...]


def topic_of(stream: str) -> bytes:
    """Return the topic of a stream. Its final NUL keeps `pods` from matching `pods.desired` as a prefix."""
    return stream.encode() + b"\0"


def stream_of(topic: bytes) -> str:
    """Return the stream of a topic. Raises UndecodableError for bytes that are no topic."""
    if not topic.endswith(b"\0"):
        raise codec.UndecodableError("topic without NUL at its end")
    try:
        return topic[:-1].decode()
    except UnicodeDecodeError as error:
        raise codec.UndecodableError("topic is not UTF-8") from error


def write_update(update: Update) -> Frames:
    """Return the frames of an update: [topic, head, value]."""
    head = UpdateHead(
        v=codec.PROTOCOL_VERSION,
        incarnation=update.incarnation,
        number=update.number,
        kind=update.kind,
        key=update.key,
        cause=update.cause,
        trace=update.trace,
    )
    return topic_of(update.stream), codec.encode(head), update.value


def read_update(frames: Sequence[bytes]) -> Update:
    """Return the update in these frames. Raises ForeignProtocolError, UndecodableError."""
    _expect(frames, 3, "update")
    head = _read_head(frames[1], UpdateHead)
    check_body(len(frames[2]))
    return Update(
        stream=stream_of(frames[0]),
        incarnation=head.incarnation,
        number=head.number,
        kind=head.kind,
        key=head.key,
        value=frames[2],
        cause=head.cause,
        trace=head.trace,
    )


def write_beat(beat: Beat) -> Frames:
    """Return the frames of a beat: [topic, beat]."""
    return BEATS_TOPIC, codec.encode(beat, "beat")


def read_beat(frames: Sequence[bytes]) -> Beat:
    """Return the beat in these frames. A beat of another major version is returned, too, if it decodes as one."""
    _expect(frames, 2, "beat")
    return codec.decode(frames[1], Beat)


def write_request(head: RequestHead, body: bytes) -> Frames:
    """Return the frames of a request: [head, body]."""
    return codec.encode(head), body


def write_reminder(head: RequestHead) -> Frames:
    """Return the frames of a reminder, [head], of a request whose body was sent before."""
    return (codec.encode(head),)


def read_request(frames: Sequence[bytes]) -> tuple[RequestHead, bytes | None]:
    """Return the request in these frames; a reminder has no body. Raises ForeignProtocolError, UndecodableError."""
    if len(frames) == 1:
        return _read_head(frames[0], RequestHead), None
    _expect(frames, 2, "request")
    check_body(len(frames[1]))
    return _read_head(frames[0], RequestHead), frames[1]


def write_answer(head: AnswerHead, body: bytes) -> Frames:
    """Return the frames of an answer, [head, body …]: a snapshot larger than a frame may be is cut into several."""
    cap = codec.MAX_MESSAGE_BYTES
    return codec.encode(head), *(body[at : at + cap] for at in range(0, len(body), cap))


def read_answer(frames: Sequence[bytes]) -> tuple[AnswerHead, bytes]:
    """Return the answer in these frames. Raises ForeignProtocolError, UndecodableError."""
    if not frames:
        raise codec.UndecodableError("answer of no frames")
    for frame in frames[1:]:
        check_body(len(frame))
    return _read_head(frames[0], AnswerHead), frames[1] if len(frames) == 2 else b"".join(frames[1:])


def check_body(size: int) -> None:
    """Raise UndecodableError for a frame that is too large, whose sender violates the protocol."""
    if size > codec.MAX_MESSAGE_BYTES:
        raise codec.UndecodableError(f"frame of {size} bytes, at most {codec.MAX_MESSAGE_BYTES}")


def _read_head(data: bytes, to: type[H]) -> H:
    """Decode a head. Its version is decoded first and alone, because another major version may have other fields."""
    version = codec.decode(data, _Version).v
    if not codec.speaks(version):
        raise codec.ForeignProtocolError(version)
    return codec.decode(data, to)


def _expect(frames: Sequence[bytes], count: int, what: str) -> None:
    if len(frames) != count:
        raise codec.UndecodableError(f"{what} of {len(frames)} frames instead of {count}")


def cut(message: Frames) -> Iterator[Frames]:
    """Yield the message itself, or in order the pieces of an update with a larger value."""
    if len(message) != _PIECE_FRAMES - 1 or len(message[2]) <= MAX_PIECE_BYTES:
        yield message
        return
    topic, head, value = message
    count = -(-len(value) // MAX_PIECE_BYTES)
    for number in range(count):
        at = number * MAX_PIECE_BYTES
        yield topic, head, value[at : at + MAX_PIECE_BYTES], b"%d/%d" % (number + 1, count)


class Joiner:
    """Joins the pieces of each topic. When a piece is lost, the whole update is dropped; the number of the next one
    shows it."""

    def __init__(self) -> None:
        # By topic: the head and the parts of the update under way.
        self._begun: dict[bytes, tuple[bytes, list[bytes]]] = {}

    def take(self, message: Sequence[bytes]) -> Sequence[bytes] | None:
        """Return the complete message, or None while pieces are missing. What is no piece is returned unchanged."""
        if len(message) != _PIECE_FRAMES:
            return message
        topic, head, part, mark = message
        numbers = [int(text) if text.isdigit() and len(text) < 5 else 0 for text in mark.split(b"/")]
        if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] <= MAX_PIECES or len(part) > MAX_PIECE_BYTES:
            return message  # it does not decode either, which the receiver counts
        begun_head, parts = self._begun.pop(topic, (b"", []))
        if numbers[0] == 1:
            begun_head, parts = head, []
        if begun_head != head or len(parts) != numbers[0] - 1:
            return None
        parts.append(part)
        if numbers[0] == numbers[1]:
            return topic, head, b"".join(parts)
        self._begun[topic] = head, parts
        return None
