"""A server of a test, and a client that has credentials for it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.kube.client import KubeClient
from tests.unit.kube.stand_in import StandIn, client_of, put_credentials, serving


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[StandIn]:
    async with serving() as server:
        put_credentials(tmp_path, 1, server.url)
        yield server


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubeClient]:
    async with client_of(tmp_path) as client:
        yield client
