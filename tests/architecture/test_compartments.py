"""The headings in the docstring of each service agree with the streams that its code uses."""

import re

import pytest

from bus.messages.streams import SERVICES, STREAMS, Stream
from tests.architecture.checkout import CHECKOUT, text_of
from tests.architecture.compartments import HEADINGS, named_streams, sections, touched_streams


@pytest.mark.parametrize("service", SERVICES)
def test_the_docstring_has_every_heading_in_order(service: str) -> None:
    assert tuple(sections(service)) == HEADINGS
    assert all(text.strip() for text in sections(service).values())


@pytest.mark.parametrize("service", SERVICES)
def test_the_docstring_names_the_streams_that_the_code_owns(service: str) -> None:
    assert named_streams(sections(service)["Owns"]) == touched_streams(service, "own")


@pytest.mark.parametrize("service", SERVICES)
def test_the_docstring_names_the_streams_that_the_code_follows(service: str) -> None:
    assert named_streams(sections(service)["Follows"]) == touched_streams(service, "follow")


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_only_its_owner_owns_a_stream(stream: Stream[object]) -> None:
    owners = {service for service in SERVICES if stream.name in touched_streams(service, "own")}
    assert owners <= {stream.owner}
    # A service that has no Event to record yet owns no stream of them.
    assert owners or stream.name.startswith("events/")


@pytest.mark.parametrize("service", SERVICES)
def test_the_entry_and_the_wiring_stay_small(service: str) -> None:
    assert len(text_of(f"services/{service}/__main__.py").splitlines()) <= 40
    assert len(text_of(f"services/{service}/service.py").splitlines()) <= 130


def test_the_seven_are_what_supervisord_runs() -> None:
    programs = re.findall(r"^\[program:([a-z]+)\]", (CHECKOUT / "supervisord.conf").read_text(), re.MULTILINE)
    assert set(programs) == {*SERVICES, "containerd"}
