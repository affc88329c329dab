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
async def reported(stage: NodeStage) -> NodeStage:
    """Return a stage whose Node is reported, so that the next period begins at a known time."""
    await stage.start()
    await stage.until(stage.ready, within=5)
    await stage.pass_time(12)
    return stage


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    yield cluster
    await cluster.stop()
