"""The bytes of updates, beats, requests and answers, as PROTOCOL.md gives them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus import codec, frames
from bus.frames import AnswerHead, RequestHead, Update, UpdateKind
from bus.messages.beat import Beat

UPDATE = Update(stream="pods.desired", incarnation="i", number=7, kind=UpdateKind.PUT, key="k", value=b"{}", cause="c")
BEAT = Beat(service="sources", incarnation="i", protocol="2.0", pid=1, sent_at=2.5, streams={"pods.desired": 7})
REQUEST = RequestHead(v="2.0", client="podsync/i", id=3, type="GetSnapshot", deadline=9.5)
ANSWER = AnswerHead(v="2.0", id=3, type="Beat")
READERS: list[Callable[[Sequence[bytes]], Any]] = [
    frames.read_update,
    frames.read_beat,
    frames.read_request,
    frames.read_answer,
]


def test_each_message_survives_the_journey() -> None:
    assert frames.read_update(frames.write_update(UPDATE)) == UPDATE
    assert frames.read_beat(frames.write_beat(BEAT)) == BEAT
    assert frames.read_request(frames.write_request(REQUEST, b"{}")) == (REQUEST, b"{}")
    assert frames.read_answer(frames.write_answer(ANSWER, b"{}")) == (ANSWER, b"{}")
    assert frames.read_answer(frames.write_answer(ANSWER, b"")) == (ANSWER, b"")


def test_a_topic_ends_in_nul_so_that_no_stream_is_a_prefix_of_another() -> None:
    assert frames.write_update(UPDATE)[0] == b"pods.desired\0"
    assert frames.write_beat(BEAT)[0] == b"beats\0"


def test_a_snapshot_over_the_cap_travels_in_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_MESSAGE_BYTES", 200)
    body = bytes(range(256)) * 2
    written = frames.write_answer(ANSWER, body)
    assert [len(frame) for frame in written[1:]] == [200, 200, 112]
    assert frames.read_answer(written) == (ANSWER, body)


@pytest.mark.parametrize("read", [frames.read_update, frames.read_request, frames.read_answer])
def test_a_head_of_another_major_version_is_foreign_whatever_else_it_holds(
    read: Callable[[Sequence[bytes]], Any],
) -> None:
    count = 3 if read is frames.read_update else 2
    arrived = [b"pods.desired\0", b'{"v":"3.0"}', b""] if count == 3 else [b'{"v":"3.0"}', b""]
    with pytest.raises(codec.ForeignProtocolError, match=r"^protocol '3\.0' is not 2\.9$"):
        read(arrived)


@pytest.mark.parametrize(
    ("read", "written"),
    [
        (frames.read_update, frames.write_update(UPDATE)),
        (frames.read_request, frames.write_request(REQUEST, b"{}")),
        (frames.read_answer, frames.write_answer(ANSWER, b"{}")),
    ],
)
def test_a_frame_over_the_cap_is_refused(
    read: Callable[[Sequence[bytes]], Any], written: Sequence[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "MAX_MESSAGE_BYTES", 1)
    with pytest.raises(codec.UndecodableError, match=r"^frame of 2 bytes, at most 1$"):
        read(written)


@pytest.mark.parametrize("topic", [b"pods.desired", b"\xff\0", b""])
def test_what_is_no_topic_is_refused(topic: bytes) -> None:
    with pytest.raises(codec.UndecodableError, match=r"^topic "):
        frames.read_update([topic, *frames.write_update(UPDATE)[1:]])


@given(st.sampled_from(READERS), st.lists(st.binary(max_size=40), max_size=4))
def test_no_bytes_at_all_can_do_more_than_be_refused(
    read: Callable[[Sequence[bytes]], Any], arrived: list[bytes]
) -> None:
    try:
        read(arrived)
    except codec.UndecodableError:
        pass
