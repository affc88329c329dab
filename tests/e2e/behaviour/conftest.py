"""The one node that all tests of this folder share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.behaviour.notes import Notes
from tests.support.agents.behaviour import Node


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    directory: Path = tmp_path_factory.mktemp("node")
    async with Node(directory) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def notes(
    request: pytest.FixtureRequest, node: Node, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Notes]:
    """What the pods of a module write, while those of its `pods_of` are there."""
    notes = Notes(Path(tmp_path_factory.mktemp("notes")))
    pods = request.module.pods_of(notes)
    node.put(pods)
    yield notes
    await node.take_away(pods)
