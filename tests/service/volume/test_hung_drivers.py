"""A driver of resource claims that hangs delays only pods that need it: not those that share a claim of another driver
with a pod of it, and what other drivers have done meanwhile is on disk (node.md 4.16)."""

from collections.abc import AsyncIterator

import pytest

from bus.messages.resource_claims import ClaimState, PodClaims
from services.volume.adapters import dra_drivers
from tests.programs.dra_driver import PREPARE, UNPREPARE, DraDriver
from tests.service.volume.claim_node import GPU, NIC, ClaimNode, claim_node, until


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimNode]:
    monkeypatch.setattr(dra_drivers, "CALL_TIMEOUT_SECONDS", 3600.0)
    async with claim_node(monkeypatch) as found:
        yield found


@pytest.fixture
def hung(node: ClaimNode) -> DraDriver:
    return node.started_driver(GPU)


@pytest.fixture
def nic(node: ClaimNode) -> DraDriver:
    return node.started_driver(NIC)


def has_prepared(name: str, item: PodClaims) -> bool:
    return any(claim.claim == name and claim.state is ClaimState.PREPARED for claim in item.claims)


@pytest.mark.long
async def test_a_pod_that_shares_a_claim_of_another_driver_does_not_wait(
    node: ClaimNode, hung: DraDriver, nic: DraDriver
) -> None:
    hung.fault(PREPARE, "hang")
    node.put("gpu", "u")
    node.put("nic", "u", "v", drivers=(NIC,))
    node.admit("u", "gpu", "nic")
    async with node.node.volume():
        await until(lambda: hung.calls(PREPARE) != [] and nic.prepared() != {})
        node.admit("v", "nic")
        await node.until_prepared("v")
        assert nic.calls(PREPARE) == [["nic"]]


@pytest.mark.long
@pytest.mark.parametrize("claims", [("gpu", "nic"), ("both",)])
async def test_what_another_driver_has_prepared_is_on_disk_and_is_not_prepared_again_after_a_kill(
    node: ClaimNode, hung: DraDriver, nic: DraDriver, claims: tuple[str, ...]
) -> None:
    hung.fault(PREPARE, "hang")
    node.put("gpu", "u")
    node.put("nic", "u", drivers=(NIC,))
    node.put("both", "u", drivers=(GPU, NIC))
    node.admit("u", *claims)
    async with node.node.volume():
        await until(lambda: b'"state":"prepared"' in (node.record.read_bytes() if node.record.exists() else b""))
        if "nic" in claims:
            await node.until("u", lambda item: has_prepared("nic", item))
        assert node.node.claims.state["u"].claims[0].state is ClaimState.PENDING
    hung.fault(PREPARE)
    async with node.node.volume():
        await node.until_prepared("u")
    assert nic.calls(PREPARE) == [[claims[-1]]]


@pytest.mark.long
async def test_a_claim_that_a_driver_does_not_unprepare_holds_up_no_other_claim(
    node: ClaimNode, hung: DraDriver, nic: DraDriver
) -> None:
    """A pod that waits for the claim shares another one with a pod that does not need the driver."""
    hung.fault(UNPREPARE, "hang")
    node.put("both", "u", "v", drivers=(GPU, NIC))
    node.put("a-nic", "v", "w", drivers=(NIC,))
    node.admit("u", "both")
    async with node.node.volume():
        await node.until_prepared("u")
        node.end("u")
        await until(lambda: hung.calls(UNPREPARE) != [] and nic.prepared() == {})
        node.admit("v", "both", "a-nic")
        await until(lambda: node.read["a-nic"] == 1)
        node.admit("w", "a-nic")
        await node.until_prepared("w")
        await node.until("v", lambda item: has_prepared("a-nic", item))
        assert not has_prepared("both", node.node.claims.state["v"])
        assert hung.calls(PREPARE) == [["both"]]
