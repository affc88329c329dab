"""What may travel: dataclasses and their JSON, the size cap, the protocol version."""

import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from bus import codec
from bus.frames import UpdateHead, UpdateKind
from shared.model.frozen_copy import replace


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Thing:
    name: str
    count: int = 0
    colour: Colour = Colour.RED
    parts: tuple[str, ...] = ()
    raw: dict[str, Any] = field(default_factory=dict)


def test_a_dataclass_survives_the_journey() -> None:
    thing = Thing(name="a", count=3, parts=("x", "y"), raw={"spec": {"z": [1, None, 1.5, "ü"]}})
    assert codec.decode(codec.encode(thing), Thing) == thing


def test_equal_values_have_equal_bytes() -> None:
    assert codec.encode(Thing(name="a", raw={"x": 1, "y": 2})) == codec.encode(Thing(name="a", raw={"y": 2, "x": 1}))


def test_unknown_fields_are_ignored_and_missing_ones_take_their_default() -> None:
    assert codec.decode(b'{"name":"a","of_a_later_version":{}}', Thing) == Thing(name="a")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'{"name":1}',
        b'{"name":"a","count":"3"}',
        b'{"name":"a","colour":"blue"}',
        b'{"name":"\xff"}',
        b'{"name":"a"',
        b'{"name":"a","raw":' + b'{"a":' * 100_000,
    ],
)
def test_what_is_not_the_message_is_refused(data: bytes) -> None:
    with pytest.raises(codec.UndecodableError, match=r"^not a Thing: "):
        codec.decode(data, Thing)


def test_a_refusal_names_the_place_and_not_the_content() -> None:
    with pytest.raises(codec.UndecodableError) as refusal:
        codec.decode(b'{"name":"a","count":"hunter2"}', Thing)
    assert "$.count" in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1, 2}}, {1: "\ud800"}, object()])
def test_what_is_no_json_does_not_travel(value: object) -> None:
    with pytest.raises(codec.UnencodableError, match=r"^pods\.desired x is no JSON: "):
        codec.encode(value, "pods.desired x")


def test_text_that_is_not_unicode_travels_as_escapes() -> None:
    bad = os.fsdecode(b"caf\xe9\xff")
    sent = Thing(name=bad, parts=(bad, "x"), raw={bad: [{"deep": bad}, 1, None], "lone": "\ud800"})
    escaped = "caf\\xe9\\xff"
    assert codec.decode(codec.encode(sent), Thing) == Thing(
        name=escaped, parts=(escaped, "x"), raw={escaped: [{"deep": escaped}, 1, None], "lone": "\\ud800"}
    )


def test_a_number_inside_a_value_with_such_text_stays_as_it_was() -> None:
    head = UpdateHead(v="1.0", incarnation="i", number=7, kind=UpdateKind.PUT, key="k", cause="\udcff")
    assert codec.decode(codec.encode(head), UpdateHead) == replace(head, cause="\\xff")


def test_a_message_has_at_most_sixteen_mebibytes() -> None:
    quotes = 2
    codec.encode("x" * (codec.MAX_MESSAGE_BYTES - quotes))
    with pytest.raises(
        codec.MessageTooLargeError, match=r"^this is too large for the bus: 16777217 bytes, at most 16777216$"
    ):
        codec.encode("x" * (codec.MAX_MESSAGE_BYTES - quotes + 1), "this")


@pytest.mark.parametrize(("version", "understood"), [("2.0", True), ("2.99", True), ("1.2", False), ("", False)])
def test_the_same_major_version_is_understood(version: str, understood: bool) -> None:
    assert codec.speaks(version) is understood
