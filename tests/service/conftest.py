"""What the tests of services share: a test marked `virtual_time` runs on virtual time, and so do its fixtures."""

import asyncio
from collections.abc import Callable

import pytest

from tests.fakes.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Choose the loop of the test."""
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": VirtualLoop}
    return {"asyncio": asyncio.new_event_loop}
