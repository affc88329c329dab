"""A service reports to bootstrap that its credentials were refused, once at a time; a silent bootstrap is no error."""

import asyncio

import pytest

from bus.messages.bootstrap import CredentialsRenewal, RenewCredentials
from services.frame.refused_credentials import RefusedCredentials
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import pass_time, virtual_clock

pytestmark = pytest.mark.virtual_time


async def test_refusals_are_one_report_at_a_time() -> None:
    network = MemoryNetwork(virtual_clock())
    asked: list[int] = []

    async def renew(request: RenewCredentials) -> CredentialsRenewal:
        asked.append(request.version)
        await asyncio.sleep(1)
        return CredentialsRenewal(due=True)

    bootstrap, status = network.bus("bootstrap"), network.bus("status")
    bootstrap.answer(RenewCredentials, renew)
    await bootstrap.start()
    await status.start()
    refused = RefusedCredentials(status)
    for _ in range(100):
        refused(3)
    await pass_time(network, 2)
    assert asked == [3]
    refused(4)
    await pass_time(network, 2)
    assert asked == [3, 4]


async def test_a_bootstrap_that_is_away_is_asked_again_with_the_next_refusal() -> None:
    network = MemoryNetwork(virtual_clock())
    status = network.bus("status")
    await status.start()
    refused = RefusedCredentials(status)
    refused(3)
    await pass_time(network, 11)
    refused(3)
    await pass_time(network, 11)
    task = refused._reporting
    assert task is not None and task.done() and task.exception() is None
