"""A prepared resource claim whose CDI specifications are lost while the machine runs is prepared again, before a
container is created with its devices (kubernetes #141433: "unresolvable CDI device")."""

import pytest

from bus.messages.resource_claims import ClaimState
from services.volume.controllers import specification_watch
from tests.programs.dra_driver import PREPARE
from tests.service.volume.claim_node import ClaimNode, is_prepared, until


async def test_a_claim_is_prepared_again_when_its_specifications_are_lost(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(specification_watch, "LOOK_SECONDS", 0.05)
    driver = node.started_driver(specified=True)
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        before = await node.until_prepared("u")
        node.node.claims.changes.clear()
        driver.lose_cdi()
        await until(lambda: driver.calls(PREPARE) == [["gpu"], ["gpu"]])
        assert await node.until_prepared("u") == before
        await until(lambda: list(driver.cdi.iterdir()) != [])
        lines = [record.getMessage() for record in caplog.records if "CDI" in record.getMessage()]
        where = "ResourceClaim shop/gpu: DRA driver gpu.example.com prepares it again"
        assert lines == [f"{where}: its CDI specifications are gone"]


@pytest.mark.long
async def test_they_are_missed_at_the_next_start_too_and_a_pod_waits_while_the_driver_is_away(node: ClaimNode) -> None:
    driver = node.started_driver(specified=True)
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_prepared("u")
    driver.lose_cdi()
    driver.stop()
    driver.remove()
    node.node.claims.changes.clear()
    async with node.node.volume():
        claim = await node.until_error("u")
        assert (claim.state, claim.devices) == (ClaimState.ERROR, ())
        shown = [change.value for change in node.node.claims.changes if hasattr(change, "value")]
        assert not any(is_prepared(item) for item in shown)
        node.started_driver(specified=True, socket="second.sock")
        await node.until_prepared("u")


@pytest.mark.long
async def test_a_further_pod_gets_a_shared_claim_only_with_its_specifications(node: ClaimNode) -> None:
    driver = node.started_driver(specified=True)
    node.put("gpu", "u", "v")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_prepared("u")
        driver.lose_cdi()
        node.admit("v", "gpu")
        await node.until_prepared("v")
        assert list(driver.cdi.iterdir()) != [] and driver.calls(PREPARE) == [["gpu"], ["gpu"]]


@pytest.mark.long
async def test_a_driver_whose_specifications_the_runtime_reads_elsewhere_is_called_once(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specification_watch, "LOOK_SECONDS", 0.01)
    driver = node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    for _ in range(2):
        async with node.node.volume():
            await node.until_prepared("u")
            node.put("other", "v")
            node.admit("v", "other")
            await node.until_prepared("v")
    assert driver.calls(PREPARE) == [["gpu"], ["other"]]
