"""Has the fixtures that tests of device plugins, of resource claims and of CSI volumes share."""

from collections.abc import AsyncIterator

import pytest

from tests.service.volume.claim_node import ClaimNode, claim_node
from tests.service.volume.csi_cluster import CsiCluster, running_csi_cluster
from tests.service.volume.device_plugins import Plugins, running_plugins


@pytest.fixture
async def plugins(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plugins]:
    async with running_plugins(monkeypatch) as found:
        yield found


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimNode]:
    async with claim_node(monkeypatch) as found:
        yield found


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    async with running_csi_cluster(monkeypatch) as cluster:
        yield cluster
