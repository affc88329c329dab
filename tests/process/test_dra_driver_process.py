"""A driver of dynamic resource allocation as a process of its own, beside volume: killed before and after it has
prepared a claim, and found again (node.md 4.16)."""

import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager

import pytest

from tests.programs.dra_driver import PREPARE, UNPREPARE, V1, V1BETA1, DraDriver
from tests.programs.running import running_program
from tests.service.volume.claim_node import GPU, ClaimNode, claim_node


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimNode]:
    async with claim_node(monkeypatch) as found:
        yield found


def driver_process(node: ClaimNode, *arguments: str) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Run a driver that serves until it is killed."""
    return running_program("dra_driver", str(node.root), GPU, *arguments)


@pytest.mark.parametrize("fault", ["die", "die after"])
async def test_a_driver_that_dies_in_a_call_prepares_the_claim_once_it_runs_again(node: ClaimNode, fault: str) -> None:
    driver = DraDriver(node.root, GPU)  # its files; the process serves
    driver.fault(PREPARE, fault)
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        with driver_process(node) as process:
            claim = await node.until_error("u", "rpc error: code = Unavailable")
            assert f"DRA driver {GPU}: " in claim.error and process.wait() == -signal.SIGKILL
        driver.fault(PREPARE)
        with driver_process(node):
            await node.until_prepared("u")
            assert driver.prepared() == {"uid-of-gpu": "gpu"}
            node.end("u")
            await node.until_gone("u")
            assert driver.prepared() == {}


async def test_a_pod_that_ends_while_its_driver_is_dead_is_unprepared_by_the_next_one(node: ClaimNode) -> None:
    driver = DraDriver(node.root, GPU)
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        with driver_process(node):
            await node.until_prepared("u")
        node.end("u")
        await node.until_error("u", "rpc error: code = Unavailable")
        with driver_process(node):
            await node.until_gone("u")
        assert (driver.prepared(), driver.calls(UNPREPARE)) == ({}, [["gpu"]])


async def test_a_driver_that_comes_back_with_another_version_is_called_by_it(node: ClaimNode) -> None:
    driver = DraDriver(node.root, GPU)
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        with driver_process(node, "--service", V1BETA1):
            await node.until_prepared("u")
        with driver_process(node):
            await node.node.registered.until(lambda state: [item.version for item in state.values()] == [V1])
            node.end("u")
            await node.until_gone("u")
        assert driver.versions() == [V1BETA1, V1]


async def test_prepared_claims_stay_through_restarts_of_volume_and_of_the_driver(node: ClaimNode) -> None:
    driver = DraDriver(node.root, GPU)
    node.put("gpu", "u")
    node.admit("u", "gpu")
    for _ in range(3):
        with driver_process(node):
            async with node.node.volume():
                await node.until_prepared("u")
    assert driver.calls(PREPARE) == [["gpu"]]


async def test_a_driver_that_was_killed_is_shown_as_one_that_does_not_listen_until_another_process_does(
    node: ClaimNode,
) -> None:
    key, driver = f"DRAPlugin/{GPU}", DraDriver(node.root, GPU)
    async with node.node.volume():
        for _ in range(2):
            with driver_process(node):
                await node.node.registered.until(lambda state: key in state and state[key].connected)
            state = await node.node.registered.until(lambda state: key in state and not state[key].connected)
            assert state[key].endpoint == str(driver.socket) and driver.registration.exists()
