"""The tests of pleg choose their event loop by a mark."""

from tests.fakes.event_loops import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
