"""A real API server keeps the contracts that the double keeps (tests/service/kube/test_api_contract.py)."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio

from shared.kube import paths
from shared.kube.interface import ApiStatusError
from tests.contracts.api_server import CONTRACTS, Contract
from tests.support.clusters.control_plane import ControlPlane
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

T = TypeVar("T")
_numbers = itertools.count(1)


class RealCluster:
    """One node on a control plane that others use as well."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.node_name = f"n{next(_numbers)}"
        self._control_plane = control_plane
        self.admin, self.node = control_plane.admin, control_plane.client(self.node_name)

    async def register(self) -> None:
        node = {"metadata": {"name": self.node_name}, "status": {"capacity": {"cpu": "2"}}}
        await self.node.create(paths.NODES, node)

    async def eventually(self, attempt: Callable[[], Awaitable[T]]) -> T:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return await attempt()
            except ApiStatusError as error:
                unknown = error.forbidden or error.code == HTTPStatus.NOT_FOUND
                if not unknown or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.05)  # no event shows when the server's caches have the pod

    async def forget_history(self) -> None:
        """A new API server's watch cache begins where it starts."""
        await self._control_plane.stop_api_server()
        await self._control_plane.start_api_server()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    controllers = "serviceaccount,serviceaccount-token,root-ca-cert-publisher"
    async with ControlPlane(directory, controllers=controllers) as running:
        yield running


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
async def test_the_api_server_keeps(contract: Contract, control_plane: ControlPlane) -> None:
    cluster = RealCluster(control_plane)
    await cluster.register()
    await contract(cluster)
