"""Chooses the event loop of a test and of its fixtures by its mark; a conftest.py imports the hook."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.fakes.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """`virtual_time`: virtual time. `both_loops`: asyncio's loop, and that of the services, whose transports and TLS
    connections are made and end in their own ways. Else asyncio's."""
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": VirtualLoop}
    if item.get_closest_marker("both_loops") is not None:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
