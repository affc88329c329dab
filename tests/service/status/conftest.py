"""The node of a cluster with status, as most tests of status begin it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.status.cluster import Cluster
from tests.service.status.node_stage import NodeStage, node_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[NodeStage]:
    async with node_stage(tmp_path) as stage:
        yield stage


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    yield cluster
    await cluster.stop()
