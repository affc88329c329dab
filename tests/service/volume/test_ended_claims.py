"""A pod that comes for a claim whose last pod has ended gets it prepared anew, whatever has become of the call that
unprepares it: the outcome of such a call is not known before its answer (node.md 4.16)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bus.messages.resource_claims import ClaimState
from services.volume.controllers import claim_work
from services.volume.controllers.resource_claims import ResourceClaims
from services.volume.core.resource_claims import claim_failures
from shared.time.backoff import Backoff
from tests.programs.dra_driver import PREPARE, UNPREPARE
from tests.service.volume.claim_node import ClaimNode, claim_node, until
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimNode]:
    async with claim_node(monkeypatch) as found:
        found.put("gpu", "u", "v")
        found.admit("u", "gpu")
        yield found


@pytest.mark.long
@pytest.mark.parametrize("specified", [False, True], ids=["elsewhere", "where the machine has its specifications"])
async def test_a_claim_that_a_driver_has_unprepared_without_a_good_answer_is_prepared_for_the_next_pod(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch, specified: bool
) -> None:
    monkeypatch.setattr(claim_failures, "RETRIES", Backoff(initial=3600.0))  # the next pod is what ends the wait
    driver = node.started_driver(specified=specified)
    async with node.node.volume():
        await node.until_prepared("u")
        driver.fault(UNPREPARE, "answers twice")
        node.end("u")
        await node.until_error("u", "NodeUnprepareResources has two answers")
        assert driver.prepared() == {}
        node.admit("v", "gpu")
        await node.until_prepared("v")
        assert driver.prepared() == {"uid-of-gpu": "gpu"} and list(driver.cdi.iterdir()) != []
        assert driver.calls(PREPARE) == [["gpu"], ["gpu"]]


async def test_no_pod_has_a_claim_prepared_while_it_is_being_unprepared(node: ClaimNode) -> None:
    driver = node.started_driver()
    node.put("none", "w", drivers=())
    async with node.node.volume():
        await node.until_prepared("u")
        driver.fault(UNPREPARE, "hang")
        node.end("u")
        await until(lambda: driver.calls(UNPREPARE) != [])
        node.admit("v", "gpu")
        await until(lambda: node.read["gpu"] == 2)
        node.admit("w", "none")  # so that the claims of all pods are published again
        await node.until_prepared("w")
        assert node.node.claims.state["v"].claims[0].state is ClaimState.PENDING


async def test_a_kill_after_unpreparing_leaves_no_claim_that_counts_as_prepared(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = node.started_driver()
    reached = asyncio.Event()

    async def nothing_more(_: ResourceClaims) -> None:
        await asyncio.Event().wait()

    def kill(name: str) -> None:
        if name == "volume.claim.unprepared":
            killed.setattr(ResourceClaims, "_turn", nothing_more)
            reached.set()
            raise asyncio.CancelledError

    with monkeypatch.context() as killed:
        killed.setattr(claim_work, "crash_point", kill)
        async with node.node.volume():
            await node.until_prepared("u")
            node.end("u")
            await asyncio.wait_for(reached.wait(), WAIT_SECONDS)
    assert driver.prepared() == {}
    driver.stop()
    driver.remove()
    node.admit("v", "gpu")
    node.node.claims.changes.clear()
    async with node.node.volume():
        await node.until_error("v", "is not registered")
        states = {change.value.claims[0].state for change in node.node.claims.changes if hasattr(change, "value")}
        assert ClaimState.PREPARED not in states
        node.started_driver(socket="second.sock")
        await node.until_prepared("v")
    assert driver.calls(PREPARE) == [["gpu"], ["gpu"]]
