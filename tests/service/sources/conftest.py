"""A node in a cluster whose sources is not started yet, as most tests of sources begin it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.sources.cluster import ClusterNode, cluster_node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ClusterNode]:
    async with cluster_node(tmp_path) as node:
        yield node
