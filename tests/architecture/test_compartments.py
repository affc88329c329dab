"""A stream has one owner, the seven services are those of supervisord, and the pages about streams are of this code."""

import re

import pytest

from bus.messages.streams import SERVICES, STREAMS
from tests.architecture.checkout import CHECKOUT, text_of
from tools import protocol_page


def test_only_its_owner_owns_a_stream(subtests: pytest.Subtests) -> None:
    for stream in STREAMS[: -len(SERVICES)]:
        with subtests.test(stream.name):
            assert [service for service in SERVICES if stream.name in protocol_page.uses("own")[service]] == [
                stream.owner
            ]


def test_the_last_streams_are_those_of_events() -> None:
    assert [stream.name for stream in STREAMS[-len(SERVICES) :]] == [f"events/{service}" for service in SERVICES]


def test_the_seven_are_what_supervisord_runs() -> None:
    programs = re.findall(r"^\[program:([a-z]+)\]", (CHECKOUT / "supervisord.conf").read_text(), re.MULTILINE)
    assert set(programs) == {*SERVICES, "containerd", "dockershim"}


def test_the_table_of_streams_is_the_one_of_the_code() -> None:
    assert text_of("ARCHITECTURE.md") == protocol_page.architecture_page(), "run: make docs"
