"""PROTOCOL.md is true: every message has a section, every field a row, every example decodes."""

import importlib
import pkgutil
import re
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

import bus.messages
from bus import codec
from bus.answers import KEPT, KEPT_BYTES, KEPT_CAP, PENDING, PENDING_BYTES
from bus.exchange import REMIND_SECONDS
from bus.messages.streams import STREAMS, Stream
from shared.model import runtime

DOCUMENT = Path(bus.messages.__file__).parent.parent / "PROTOCOL.md"


@cache
def messages() -> dict[str, type[Any]]:
    modules = [
        importlib.import_module(f"bus.messages.{module.name}") for module in pkgutil.iter_modules(bus.messages.__path__)
    ]
    return {
        name: thing
        for module in [*modules, runtime]
        for name, thing in vars(module).items()
        if is_dataclass(thing)
        and isinstance(thing, type)
        and thing.__module__ == module.__name__
        and thing is not Stream
    }


@cache
def sections() -> dict[str, str]:
    parts = re.split(r"^### (.+)$", DOCUMENT.read_text(), flags=re.MULTILINE)
    return {
        name.strip(): re.split(r"^## ", text, flags=re.MULTILINE)[0]
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_every_message_has_a_section_and_every_section_a_message() -> None:
    assert set(sections()) == set(messages())


def test_the_document_is_of_the_version_the_code_speaks() -> None:
    assert DOCUMENT.read_text().startswith(f"# The bus protocol, version {codec.PROTOCOL_VERSION}\n")


def examples(name: str) -> list[str]:
    return re.findall(r"^```json\n(.*?)\n```$", sections()[name], flags=re.MULTILINE | re.DOTALL)


def test_each_section_has_an_example_that_decodes_and_survives_the_round_trip() -> None:
    for name in sections():
        [example] = examples(name)
        decoded = codec.decode(example.encode(), messages()[name])
        assert codec.decode(codec.encode(decoded), messages()[name]) == decoded, name


def test_no_example_names_a_field_that_its_message_lacks() -> None:
    lacking = {
        name: orjson.loads(example).keys() - {field.name for field in fields(messages()[name])}
        for name in sections()
        for example in examples(name)
    }
    assert {name: keys for name, keys in lacking.items() if keys} == {}


def test_each_section_has_a_row_for_each_field_in_order() -> None:
    rows = {name: re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) for name, text in sections().items()}
    assert rows == {name: [field.name for field in fields(message)] for name, message in messages().items()}


def test_each_section_has_its_class_of_fact_and_what_loss_and_restart_mean() -> None:
    of_fact = r"\*\*Class of fact\*\*: (re-derivable|on disk first|disposable|that of its stream)"
    meanings = [rf"\*\*[^*]*{subject}[^*]*\*\*" for subject in ("lost", "duplicated", "late", "restart")]
    assert {
        name: missing
        for name, text in sections().items()
        if (missing := [one for one in (of_fact, *meanings) if not re.search(one, text, flags=re.IGNORECASE)])
    } == {}


def test_the_limits_of_requests_are_those_of_the_code() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    assert f"at most {PENDING} in progress, with bodies of at most {PENDING_BYTES >> 20} MiB together" in text
    assert f"at most {KEPT} answers of up to {KEPT_CAP >> 10} KiB, {KEPT_BYTES >> 20} MiB together" in text
    assert f"A caller has at most {PENDING} of a type" in text
    assert f"a reminder every {REMIND_SECONDS * 1000:.0f} ms" in text


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_every_stream_stands_in_the_section_of_its_values_with_its_owner(stream: Stream[Any]) -> None:
    section = sections()[stream.value.__name__]
    if stream.name.startswith("events/"):
        assert "**Stream**: `events/<service>`" in section
    else:
        assert f"**Stream**: `{stream.name}`\n- **Owner**: {stream.owner}\n- **Key**: " in section
