"""A DRA driver that is missing, hangs, answers wrongly or has many pods: the claims of other pods are prepared, and
what is wrong is one line (node.md 4.16)."""

import asyncio
import math
import time

import pytest

from bus.messages.resource_claims import ClaimState
from services.volume.adapters import dra_drivers
from services.volume.core.resource_claims import claim_failures, shown_claims
from services.volume.core.resource_claims.claims_of_node import ClaimsOfNode
from shared.time.backoff import Backoff
from tests.programs.dra_driver import PREPARE, UNPREPARE
from tests.service.volume.claim_node import GPU, NIC, ClaimNode, until
from tests.support.waits.deadline import WAIT_SECONDS


async def test_a_pod_waits_for_a_driver_that_is_named_and_goes_on_when_it_comes(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_failures, "RETRIES", Backoff(initial=3600.0))  # the driver is what ends the wait
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        claim = await node.until_error("u")
        assert claim.error == f"prepare dynamic resources: DRA driver {GPU} is not registered"
        assert (claim.state, claim.uid) == (ClaimState.ERROR, "uid-of-gpu")
        assert abs(claim.since - time.time()) < WAIT_SECONDS
        events = await node.node.events.until(bool)
        [event] = events.values()
        assert (event.type, event.reason) == ("Warning", "FailedPrepareDynamicResources")
        assert event.message == f"Failed to prepare dynamic resources: {claim.error}"
        assert (event.namespace, event.name, event.uid) == ("shop", "web-u", "u")
        node.started_driver()
        [claim] = await node.until_prepared("u")
        assert (claim.error, claim.since) == ("", 0.0)


@pytest.mark.share(4)
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("lie", "NodePrepareResources returned result for unknown claim UID someone-else"),
        ("skip", "NodePrepareResources skipped 1 ResourceClaims"),
        ("error", "NodePrepareResources failed for ResourceClaim gpu: no such\\ndevice"),
        ("long", "NodePrepareResources failed for ResourceClaim gpu: the driver names a device with more than 1024"),
        ("garbage", "NodePrepareResources cannot be decoded"),
        ("answers twice", "NodePrepareResources has two answers"),
        ("RESOURCE_EXHAUSTED", "rpc error: code = ResourceExhausted desc = NodePrepareResources fails\\non request"),
    ],
)
async def test_what_a_driver_answers_wrongly_is_one_line_that_names_it_and_is_tried_again(
    node: ClaimNode, fault: str, text: str
) -> None:
    driver = node.started_driver()
    driver.fault(PREPARE, fault)
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        claim = await node.until_error("u")
        assert claim.error.startswith(f"prepare dynamic resources: DRA driver {GPU}: ")
        assert text in claim.error and claim.error.isprintable()
        driver.fault(PREPARE)
        await node.until_prepared("u")


async def test_a_driver_that_hangs_delays_no_pod_of_another_one_and_its_call_ends(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = node.started_driver(GPU)
    hung.fault(PREPARE, "hang")
    node.started_driver(NIC)
    node.put("gpu", "u")
    node.put("nic", "v", drivers=(NIC,))
    node.admit("u", "gpu")
    async with node.node.volume():
        await until(lambda: hung.calls(PREPARE) != [])
        node.admit("v", "nic")
        await node.until_prepared("v")
        assert node.node.claims.state["u"].claims[0].state is ClaimState.PENDING
    monkeypatch.setattr(dra_drivers, "CALL_TIMEOUT_SECONDS", 0.5)
    async with node.node.volume():
        claim = await node.until_error("u")
        assert "rpc error: code = DeadlineExceeded" in claim.error


async def test_a_pod_that_ends_while_its_driver_hangs_leaves_nothing_prepared(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra_drivers, "CALL_TIMEOUT_SECONDS", 0.5)
    driver = node.started_driver()
    driver.fault(PREPARE, "hang")
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await until(lambda: driver.calls(PREPARE) != [])
        node.end("u")
        await node.until_gone("u")
        assert ["gpu"] in driver.calls(UNPREPARE)  # a slow machine may need a second call


async def test_a_pod_whose_driver_never_came_ends_without_one(node: ClaimNode) -> None:
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_error("u")
        node.end("u")
        await node.until_gone("u")


async def test_a_claim_without_devices_is_prepared_without_a_driver(node: ClaimNode) -> None:
    node.put("gpu", "u", drivers=())
    node.admit("u", "gpu")
    async with node.node.volume():
        [claim] = await node.until_prepared("u")
        assert claim.devices == ()
        node.end("u")
        await node.until_gone("u")


async def test_a_missing_driver_is_named_until_it_unprepares_and_holds_up_nothing_for_ever(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        await node.until_prepared("u")
        first.stop()
        first.remove()
        await node.node.registered.until(lambda state: not state)
        node.end("u")
        claim = await node.until_error("u")
        assert claim.state is ClaimState.UNPREPARING
        assert claim.error == f"unprepare dynamic resources: DRA driver {GPU} is not registered"
        assert not node.node.claims.state["u"].overdue
        monkeypatch.setattr(shown_claims, "MAX_UNPREPARE_SECONDS", 0.0)
        await node.until("u", lambda item: item.overdue)
        await node.node.until_troubles(f"ResourceClaim gpu: {claim.error} (start the driver)")
        second = node.started_driver(socket="second.sock")
        await node.until_gone("u")
        assert second.prepared() == {}
        await node.node.until_troubles()


async def test_of_two_sockets_of_a_driver_the_one_that_answers_is_called(node: ClaimNode) -> None:
    old = node.started_driver(socket="old.sock")
    async with node.node.volume():
        await node.node.registered.until(bool)
        new = node.started_driver(socket="new.sock")
        await node.node.registered.until(lambda state: state[f"DRAPlugin/{GPU}"].endpoint == str(new.socket))
        new.stop()
        node.put("gpu", "u")
        node.admit("u", "gpu")
        await node.until_prepared("u")
        assert old.prepared() == {"uid-of-gpu": "gpu"}


async def test_a_pod_that_waits_reads_nothing_again_when_a_driver_of_others_comes(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_failures, "RETRIES", Backoff(initial=3600.0))
    node.admit("u", "unknown")
    node.put("none", "v", drivers=())
    async with node.node.volume():
        await node.until_error("u")
        node.started_driver(NIC)
        await node.node.registered.until(bool)
        node.admit("v", "none")
        await node.until_prepared("v")
        assert node.read["unknown"] == 1


@pytest.mark.long
async def test_many_pods_of_one_driver_are_prepared(node: ClaimNode) -> None:
    driver = node.started_driver()
    driver.fault(PREPARE, "slow")
    uids = [f"u{number}" for number in range(30)]
    for uid in uids:
        node.put(f"gpu-{uid}", uid)
        node.admit(uid, f"gpu-{uid}")
    async with node.node.volume():
        async with asyncio.timeout(WAIT_SECONDS):
            for uid in uids:
                await node.until_prepared(uid)
        assert len(driver.prepared()) == len(driver.calls(PREPARE)) == 30


async def test_an_attempt_that_becomes_due_while_the_process_is_slow_is_made(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = ClaimsOfNode.pods_due

    def look_slowly(claims: ClaimsOfNode, now: float) -> list[str]:
        due, later = look(claims, now), claims.next_attempt(now)
        if not due and later < math.inf:
            time.sleep(max(0.0, later - time.monotonic()) + 0.001)
        return due

    node.started_driver()
    node.put("first", "v")
    node.admit("v", "first")
    async with node.node.volume():
        await node.until_prepared("v")  # the driver, whose coming makes a pod try again, is there
        monkeypatch.setattr(ClaimsOfNode, "pods_due", look_slowly)
        node.admit("u", "gpu")
        await node.until_error("u", "not found")
        node.put("gpu", "u")
        await node.until_prepared("u")
