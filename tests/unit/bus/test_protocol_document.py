"""PROTOCOL.md is true: its tables are those of the messages, and every example decodes."""

import re
from dataclasses import dataclass
from functools import cache

import orjson
import pytest

from bus import codec
from bus.answers import MAX_KEPT_ANSWER_BYTES, MAX_KEPT_ANSWERS, MAX_KEPT_BYTES, MAX_PENDING_BYTES, MAX_PENDING_REQUESTS
from bus.exchange import REMIND_SECONDS
from tools.protocol_page import PROTOCOL as DOCUMENT
from tools.protocol_page import field_rows, messages, parts, protocol_page


def test_the_page_is_of_these_messages() -> None:
    assert DOCUMENT.read_text() == protocol_page(), "run: make docs"


def test_the_document_is_of_the_version_the_code_speaks() -> None:
    assert DOCUMENT.read_text().startswith(f"# The bus protocol, version {codec.PROTOCOL_VERSION}\n")


@cache
def examples() -> dict[str, list[str]]:
    found = re.split(r"^### (.+)$", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]
    return {
        name: re.findall(r"^```json\n(.*?)\n```$", text, flags=re.MULTILINE | re.DOTALL)
        for name, text in zip(found[::2], found[1::2], strict=True)
    }


def test_each_message_has_an_example_that_decodes_and_survives_the_round_trip() -> None:
    for name in messages().keys() - parts().keys():
        [example] = examples()[name]
        decoded = codec.decode(example.encode(), messages()[name])
        assert codec.decode(codec.encode(decoded), messages()[name]) == decoded, name


def test_no_example_names_a_field_that_its_message_lacks() -> None:
    lacking = {
        name: orjson.loads(example).keys() - {field for field, *_ in field_rows(messages()[name])}
        for name, found in examples().items()
        for example in found
    }
    assert {name: keys for name, keys in lacking.items() if keys} == {}


@dataclass(frozen=True)
class Sample:
    """What the tables are read from."""

    uid: str  # pod UID
    # name -> how long, in seconds;
    # None = it lasts, "" | "a"
    times: dict[str, tuple[float, ...]] | None = None
    versions: tuple[int, int] = (0, 0)  # those of `Snapshot`


def test_a_table_has_the_types_as_json_names_them_and_the_comments() -> None:
    assert field_rows(Sample) == [
        ("uid", "string", "pod UID"),
        ("times", "object of lists of numbers or null", 'name → how long, in seconds; null = it lasts, "" \\| "a"'),
        ("versions", "[integer, integer]", "those of [Snapshot](#snapshot)"),
    ]


@dataclass(frozen=True)
class Silent:
    """One field says nothing."""

    uid: str  # pod UID
    name: str


def test_a_field_without_a_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Silent\.name: say in a comment what it means"):
        field_rows(Silent)


def test_the_limits_of_requests_are_those_of_the_code() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    assert (
        f"at most {MAX_PENDING_REQUESTS} in progress, with bodies of at most {MAX_PENDING_BYTES >> 20} MiB together"
        in text
    )
    assert (
        f"at most {MAX_KEPT_ANSWERS} answers of up to {MAX_KEPT_ANSWER_BYTES >> 10} KiB, "
        f"{MAX_KEPT_BYTES >> 20} MiB together" in text
    )
    assert f"A caller has at most {MAX_PENDING_REQUESTS} of a type" in text
    assert f"a reminder every {REMIND_SECONDS * 1000:.0f} ms" in text
