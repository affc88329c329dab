"""A pleg on the double of a runtime, as most tests of pleg begin it."""

from collections.abc import AsyncIterator

import pytest

from tests.service.pleg.world import PlegWorld


@pytest.fixture
async def world() -> AsyncIterator[PlegWorld]:
    async with PlegWorld() as world:
        yield world
