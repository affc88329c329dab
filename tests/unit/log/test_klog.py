"""A record is one record: golden lines of both forms, and no value can make two of them."""

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.log.klog import folded_text, go_quote, json_line, shortened_json, structured, text_body, text_header
from tests.unit.examples import examples


class Phase(StrEnum):
    RUNNING = "Running"


@dataclass
class Login:
    user: str
    password: str = field(repr=False)


class Mute:
    def __str__(self) -> str:
        raise ValueError("no")


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


def test_a_header_is_klogs() -> None:
    assert text_header("I", "0102 15:04:05.067890", 1234, "pleg/worker.py", 12) == (
        "I0102 15:04:05.067890    1234 pleg/worker.py:12] "
    )
    assert text_header("E", "1231 00:00:00.000001", 12345678, "a.py", 1).endswith(".000001 12345678 a.py:1] ")


def test_a_message_with_fields(subtests: pytest.Subtests) -> None:
    for made, line in [
        (structured("Pod started"), '"Pod started"'),
        (structured("x", pod="ns/web", number=123), '"x" pod="ns/web" number=123'),
        (structured("x", key={"b": [1, None], "a": "ü"}), '"x" key={"a":"ü","b":[1,null]}'),
        (structured("x", a=True, b=False, c=None, d=1.5), '"x" a=true b=false c=null d=1.5'),
        (structured("x", pod="p", err=OSError(2, "gone")), '"x" err="[Errno 2] gone" pod="p"'),
        (structured("x", err=TimeoutError()), '"x" err="TimeoutError"'),
        (structured("x", pod="p", err=None), '"x" pod="p"'),
        (structured("two\nlines"), '"two\\nlines"'),
        (structured("x", key='a "b" \\ \t\x1b\u2028\udcff'), '"x" key="a \\"b\\" \\\\ \\t\\x1b\\u2028\\xff"'),
        (structured("x", key="one\ntwo", n=1), '"x" key=<\n\tone\n\ttwo\n > n=1'),
        (structured("x", key="one\ntwo\n"), '"x" key=<\n\tone\n\ttwo\n >'),
        (structured("x", key="\n"), '"x" key=<\n\t\n >'),
        (structured("x", key=b"a\xff"), '"x" key="a\\xff"'),
        (structured("x", phase=Phase.RUNNING), '"x" phase="Running"'),
        (structured("x", key=("a", 1), none={}), '"x" key=["a",1] none={}'),
        (structured("x", key=2**70), f'"x" key={2**70}'),
        (structured("x", key=float("nan")), '"x" key="nan"'),
        (structured("x", key=Mute()), '"x" key="<Mute cannot be shown: ValueError>"'),
        (structured("x", key=CIRCLE), '"x" key="[[...]]"'),
        (structured("x", **{"a b": 1, "a\nb": 2}), '"x" "a b"=1 "a\\nb"=2'),
    ]:
        with subtests.test(made):
            assert made == line


@pytest.mark.parametrize("value", [Login("me", "hidden"), {"key": Login("me", "hidden")}, [Login("me", "hidden")]])
def test_what_a_class_hides_stays_hidden(value: object) -> None:
    made = structured("x", login=value)
    assert "me" in made
    assert "hidden" not in made
    assert "hidden" not in json_line(0.0, "a/b.py:1", made, 0)


def test_a_field_has_its_value_from_the_moment_of_logging() -> None:
    pods = ["a"]
    made = structured("x", pods=pods)
    pods.append("b")
    assert json.loads(json_line(0.0, "a/b.py:1", made, 0))["pods"] == ["a"]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ('pod "web" started', 'pod "web" started'),
        ("a\nE0101 00:00:00.000000       1 x.py:1] forged", "a\n\tE0101 00:00:00.000000       1 x.py:1] forged"),
        ("100 %\r\x1b[2J\x00\ttab", "100 %\\x0d\\x1b[2J\\x00\ttab"),
        (structured("x", key="one\ntwo\x1b"), '"x" key=<\n\tone\n\ttwo\\x1b\n >'),
    ],
)
def test_a_text_body(text: str, body: str) -> None:
    assert text_body(text) == body


@pytest.mark.parametrize(
    ("line", "golden"),
    [
        (
            json_line(1580306777.0484229, "pleg/service.py:88", "pod web started", 0, logger="pleg"),
            '{"ts":1580306777048.423,"caller":"pleg/service.py:88","msg":"pod web started","v":0,"logger":"pleg"}',
        ),
        (
            json_line(1.0, "a/b.py:1", structured("Failed", pod="ns/p", err=OSError("no")), None),
            '{"ts":1000.0,"caller":"a/b.py:1","msg":"Failed","err":"no","pod":"ns/p"}',
        ),
        (
            json_line(1.0, "a/b.py:1", structured("x", key={"a": [1]}, big=2**70, none=None), 4),
            f'{{"ts":1000.0,"caller":"a/b.py:1","msg":"x","v":4,"key":{{"a":[1]}},"big":{2**70},"none":null}}',
        ),
        (
            json_line(1.0, "a/b.py:1", structured("x", ts=5, msg="y"), 0),
            '{"ts":1000.0,"caller":"a/b.py:1","msg":"x","v":0,"ts_":5,"msg_":"y"}',
        ),
        (
            json_line(1.0, "a/b.py:1", "failed", None, "KeyError: 1", "Traceback\n  line"),
            '{"ts":1000.0,"caller":"a/b.py:1","msg":"failed","err":"KeyError: 1","stacktrace":"Traceback\\n  line"}',
        ),
        (
            json_line(1.0, "a/b.py:1", structured("\udcff", key="\udcff"), 0),
            '{"ts":1000.0,"caller":"a/b.py:1","msg":"\\\\udcff","v":0,"key":"\\\\udcff"}',
        ),
    ],
)
def test_a_json_line(line: str, golden: str) -> None:
    assert line == golden
    json.loads(line)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.from_type(Exception),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=5,
)
SURROGATES = st.text(st.characters(exclude_categories=()))
MESSAGES = st.builds(
    lambda message, values: structured(message, **values), SURROGATES, st.dictionaries(SURROGATES, ANYTHING)
)


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(SURROGATES | MESSAGES)
def test_anything_is_one_record_of_text(message: str) -> None:
    first, *further = text_body(message).split("\n")
    assert "\r" not in first and "\x1b" not in first
    assert all(line.startswith("\t") or re.match(r" >( |$)", line) for line in further)


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(SURROGATES | MESSAGES)
def test_anything_is_one_json_object_on_one_line(message: str) -> None:
    line = json_line(1.5, "a/b.py:1", message, 0)
    assert "\n" not in line and "\r" not in line
    found = json.loads(line)
    assert found["ts"] == 1500.0 and found["v"] == 0 and isinstance(found["msg"], str)


@given(SURROGATES)
def test_a_quoted_string_can_be_read_back(text: str) -> None:
    quoted = go_quote(text)
    assert quoted.isprintable()
    if not re.search(r"[\ud800-\udfff\x07\x0b]", text):
        plain = re.sub(r"\\U([0-9a-f]{8})|\\x([0-9a-f]{2})|(\\.)", _as_json, quoted)
        assert json.loads(plain) == text


def _as_json(found: re.Match[str]) -> str:
    if found[3]:
        return found[3]
    return json.dumps(chr(int(found[1] or found[2], 16)))[1:-1]


@given(st.text(min_size=1), st.integers(16, 64))
def test_a_folded_record_is_the_same_record_in_small_pieces(text: str, limit: int) -> None:
    line = ("I] " + text_body(text) + "\n").encode(errors="backslashreplace")
    pieces = folded_text(line, limit)
    assert all(len(piece) <= limit and piece.endswith(b"\n") for piece in pieces)
    assert all(b.startswith(b"\t") for b in b"".join(pieces).split(b"\n")[1:-1])
    assert b"".join(pieces).replace(b"\n", b"").replace(b"\t", b"") == line.replace(b"\n", b"").replace(b"\t", b"")
    assert all(piece.decode() for piece in pieces)


@pytest.mark.parametrize("unit", ["x", "\x00", "\U0001f600", "ü\n"])
def test_a_json_record_too_long_for_a_pipe_keeps_its_header(unit: str) -> None:
    made = structured(unit * 5000, err=unit * 5000, pod="p" * 5000)
    line = json_line(1.0, "a/b.py:1", made, None, logger="pleg")
    short = shortened_json(line, 4095)
    found = json.loads(short)
    assert len(short) <= 4095
    assert (found["caller"], found["logger"], found["truncated"]) == ("a/b.py:1", "pleg", len(line))
    assert found["msg"] and made.message.startswith(found["msg"])
