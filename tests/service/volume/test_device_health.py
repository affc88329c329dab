"""The health of devices of resource claims, as their drivers report it (node.md 4.16): published with the claims of a
pod, unknown once a report is too old, and without an effect on preparing."""

from collections.abc import AsyncIterator

import pytest

from services.volume.controllers import device_health_watch
from shared.time.backoff import Backoff
from tests.programs.dra_driver import HEALTH_V1, HEALTH_V1ALPHA1, V1, WATCH, DraDriver
from tests.service.volume.claim_node import GPU, ClaimNode, claim_node


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimNode]:
    monkeypatch.setattr(device_health_watch, "MIN_REPORT_SECONDS", 0.05)
    monkeypatch.setattr(device_health_watch, "RETRIES", Backoff(initial=0.1, cap=0.3))
    async with claim_node(monkeypatch) as found:
        found.put("gpu", "u")
        found.admit("u", "gpu")
        yield found


async def until_health(node: ClaimNode, health: str, message: str = "") -> None:
    """Until the one device of the pod's claim has this health."""
    await node.until(
        "u", lambda item: [(d.health, d.message) for c in item.claims for d in c.devices] == [(health, message)]
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("services", "used"),
    [((V1, HEALTH_V1ALPHA1), HEALTH_V1ALPHA1), ((V1, HEALTH_V1ALPHA1, HEALTH_V1), HEALTH_V1)],
)
async def test_the_health_of_a_device_is_published_with_the_message_of_the_driver(
    node: ClaimNode, services: tuple[str, ...], used: str
) -> None:
    driver = node.driver(services=services)
    driver.set_health("gpu", "HEALTHY")
    driver.start()
    async with node.node.volume():
        await until_health(node, "Healthy")
        driver.set_health("gpu", "UNHEALTHY", "ECC errors:\n12")
        await until_health(node, "Unhealthy", "ECC errors:\\n12")
        assert node.node.registered.state[f"DRAPlugin/{GPU}"].health == used
        assert set(driver.versions()) == {V1, used}


@pytest.mark.long
async def test_a_driver_without_reports_has_no_health_and_a_device_that_it_does_not_name_is_unknown(
    node: ClaimNode,
) -> None:
    first = node.started_driver()
    async with node.node.volume():
        await until_health(node, "")
        first.stop()
        first.remove()
        second = node.driver(services=(V1, HEALTH_V1), socket="second.sock")
        second.set_health("another", "HEALTHY")
        second.start()
        await until_health(node, "Unknown")


async def test_a_report_ends_after_its_time_and_at_once_when_the_driver_is_deregistered(node: ClaimNode) -> None:
    driver = node.started_driver(services=(V1, HEALTH_V1))
    async with node.node.volume():
        await node.until_prepared("u")  # the time of the report begins after it
        driver.set_health("gpu", "HEALTHY", timeout=1)
        await until_health(node, "Healthy")
        await until_health(node, "Unknown")
        driver.set_health("gpu", "UNHEALTHY", timeout=0)
        await until_health(node, "Unhealthy")
        driver.remove()
        await until_health(node, "")


@pytest.mark.parametrize("fault", ["garbage", "many", "UNIMPLEMENTED"])
async def test_a_stream_that_cannot_be_used_is_tried_again_and_delays_no_claim(node: ClaimNode, fault: str) -> None:
    driver = node.driver(services=(V1, HEALTH_V1))
    driver.set_health("gpu", "HEALTHY")
    driver.fault(WATCH, fault)
    driver.start()
    async with node.node.volume():
        await node.until_prepared("u")
        driver.fault(WATCH)
        await until_health(node, "Healthy")


async def test_health_is_reported_again_after_a_restart_of_volume(node: ClaimNode) -> None:
    driver: DraDriver = node.driver(services=(V1, HEALTH_V1))
    driver.set_health("gpu", "UNHEALTHY", "hot")
    driver.start()
    for _ in range(2):
        async with node.node.volume():
            await until_health(node, "Unhealthy", "hot")
