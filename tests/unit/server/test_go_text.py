"""Texts as Go writes them."""

import pytest

from services.server.core.go_text import parse_query, quote


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("web", '"web"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("line\n\t\x00\x7f", '"line\\n\\t\\x00\\x7f"'),
        ("späti", '"späti"'),
        ("\u200b", '"\\u200b"'),
    ],
)
def test_quoting(text: str, quoted: str) -> None:
    assert quote(text) == quoted


def test_bytes_that_are_no_utf8_are_escaped() -> None:
    assert quote("a\udcffb") == '"a\\xffb"'


def test_a_query_keeps_every_value_in_order() -> None:
    assert parse_query("a=1&a=2&b&c=x+y%20z") == {"a": ["1", "2"], "b": [""], "c": ["x y z"]}
