"""PURE. Cuts a large update into pieces for the wire and joins them again: a queue of messages is so bounded in bytes.

ZeroMQ bounds what a follower has not read by the number of messages. With pieces of at most 32 KiB that is 32 MiB.
A piece is [topic, head of the update, part of the value, b"<its number from 1>/<how many>"].
"""

from collections.abc import Iterator, Sequence

from bus.frames import Frames

MAX_PIECE_BYTES = 32 * 1024
MAX_PIECES = 1024  # of one update; a value has at most 16 MiB
_PIECE_FRAMES = 4


def cut(message: Frames) -> Iterator[Frames]:
    """Yield the message itself, or the pieces of an update with a larger value, in their order."""
    if len(message) != _PIECE_FRAMES - 1 or len(message[2]) <= MAX_PIECE_BYTES:
        yield message
        return
    topic, head, value = message
    count = -(-len(value) // MAX_PIECE_BYTES)
    for number in range(count):
        at = number * MAX_PIECE_BYTES
        yield topic, head, value[at : at + MAX_PIECE_BYTES], b"%d/%d" % (number + 1, count)


class Joiner:
    """Joins the pieces of each topic. One whose update lost a piece is dropped with it, which the number shows."""

    def __init__(self) -> None:
        self._begun: dict[bytes, tuple[bytes, list[bytes]]] = {}  # topic -> head and parts of the update under way

    def take(self, message: Sequence[bytes]) -> Sequence[bytes] | None:
        """Return the complete message, None while pieces are missing. What is no piece is returned as it is."""
        if len(message) != _PIECE_FRAMES:
            return message
        topic, head, part, mark = message
        numbers = [int(text) if text.isdigit() and len(text) < 5 else 0 for text in mark.split(b"/")]
        if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] <= MAX_PIECES or len(part) > MAX_PIECE_BYTES:
            return message  # which is not decodable either
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
