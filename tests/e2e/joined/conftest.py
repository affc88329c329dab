"""The one node of a cluster that the tests of this folder look at from outside."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.kube import paths
from tests.support.clusters.cluster import Cluster


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def joined(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def empty(joined: Cluster) -> AsyncIterator[Cluster]:
    """The node without pods; at the end of the module its pods are deleted."""
    yield joined
    names = [pod["metadata"]["name"] for pod in await joined.items(paths.pods("default"))]
    for name in names:
        await joined.delete_pod(name, grace=0)
    await joined.wait_gone(*names)
