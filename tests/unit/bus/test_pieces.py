"""Large updates in pieces: joined they are what was cut; a lost piece loses the update and nothing else."""

import random

import pytest

from bus.codec import MAX_MESSAGE_BYTES
from bus.frames import MAX_PIECE_BYTES, MAX_PIECES, Joiner, Update, UpdateKind, cut, read_update, write_update


def update(number: int, size: int) -> Update:
    return Update(
        stream="pods.desired", incarnation="i", number=number, kind=UpdateKind.PUT, key="k", value=b"x" * size
    )


@pytest.mark.long
@pytest.mark.parametrize("size", [0, MAX_PIECE_BYTES, MAX_PIECE_BYTES + 1, 5 * MAX_PIECE_BYTES, MAX_MESSAGE_BYTES])
def test_pieces_are_small_and_join_to_the_update(size: int) -> None:
    pieces, joiner = list(cut(write_update(update(7, size)))), Joiner()
    assert all(len(piece[2]) <= MAX_PIECE_BYTES for piece in pieces) and len(pieces) <= MAX_PIECES
    *before, last = [joiner.take(piece) for piece in pieces]
    assert not any(before) and last is not None and read_update(last) == update(7, size)


def test_what_has_lost_a_piece_is_lost_alone() -> None:
    draw = random.Random(1)
    sizes = [draw.choice((10, 40_000, 100_000, 200_000)) for _ in range(300)]
    updates = [write_update(update(number, size)) for number, size in enumerate(sizes)]
    messages = [(number, piece) for number, message in enumerate(updates) for piece in cut(message)]
    lost = set(draw.sample(range(len(messages)), 150))
    spoilt = {messages[at][0] for at in lost}
    joiner = Joiner()
    joined = [joiner.take(piece) for at, (_, piece) in enumerate(messages) if at not in lost]
    assert [read_update(message) for message in joined if message] == [
        update(number, size) for number, size in enumerate(sizes) if number not in spoilt
    ]


@pytest.mark.parametrize("mark", [b"", b"1", b"0/2", b"3/2", b"1/2/3", b"a/b", b"1/99999", b"-1/2", b"1/2000"])
def test_a_mark_that_is_none_is_left_to_the_decoder(mark: bytes) -> None:
    message = [b"pods.desired\0", b"{}", b"x", mark]
    assert Joiner().take(message) is message
