"""The one node that all tests of this folder share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.agents.behaviour import Node


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    directory: Path = tmp_path_factory.mktemp("node")
    async with Node(directory) as running:
        yield running
