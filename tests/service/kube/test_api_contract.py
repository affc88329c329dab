"""The API server's double keeps the contracts that the real API server keeps (tests/e2e/test_api_contract.py)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from shared.time.clock import Clock
from tests.contracts.api_server import CONTRACTS, Contract
from tests.fakes.api_resources import NEWEST, V1_20, OlderServer
from tests.fakes.api_server import FakeApiServer
from tests.fakes.virtual_time import VirtualLoop

T = TypeVar("T")


class DoubledCluster:
    """The double with one node."""

    def __init__(self, clock: Clock, drops: OlderServer) -> None:
        self.node_name = "n1"
        self.server = FakeApiServer(clock, drops=drops)
        self.admin, self.node = self.server.client(), self.server.client("system:node:n1")
        self.server.put("/api/v1/nodes/n1", {"status": {"capacity": {"cpu": "2"}}})

    async def eventually(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await attempt()

    async def forget_history(self) -> None:
        self.server.compact()


@pytest.mark.long
@pytest.mark.parametrize("drops", [NEWEST, V1_20], ids=["newest", "1.20"])
@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_the_double_keeps(contract: Contract, drops: OlderServer) -> None:
    async def keep() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.gather(contract(DoubledCluster(loop.clock, drops)), _pass_time(loop))

    async def _pass_time(loop: VirtualLoop) -> None:
        """Watches last seconds: let them pass once everything else has happened."""
        for _ in range(200):
            await asyncio.sleep(0)
        loop.clock.advance(6)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(keep())
