"""The tests of services choose their event loop, as for virtual time, by a mark."""

from tests.fakes.event_loops import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
