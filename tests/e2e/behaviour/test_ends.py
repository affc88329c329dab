"""How pods come to an end by themselves: exit codes under every restart policy, and what the status then says."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.behaviour import Node, container, pod_of, status_of

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(120)]

PODS = {
    "ends-never-0": pod_of("ends-never-0", container("c", "exit 0"), restartPolicy="Never"),
    "ends-never-3": pod_of("ends-never-3", container("c", "exit 3"), restartPolicy="Never"),
    "ends-failure-0": pod_of("ends-failure-0", container("c", "exit 0"), restartPolicy="OnFailure"),
    "ends-failure-2": pod_of("ends-failure-2", container("c", "exit 2"), restartPolicy="OnFailure"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    node.put(PODS)
    yield
    await node.take_away(PODS)


async def test_exit_0_under_never_is_succeeded(node: Node) -> None:
    pod = await node.wait_phase("ends-never-0", "Succeeded")
    ended = status_of(pod, "c")
    assert (ended["state"]["terminated"]["reason"], ended["restartCount"]) == ("Completed", 0)


async def test_a_failure_under_never_is_failed_and_not_tried_again(node: Node) -> None:
    pod = await node.wait_phase("ends-never-3", "Failed")
    ended = status_of(pod, "c")
    assert (ended["state"]["terminated"]["exitCode"], ended["restartCount"]) == (3, 0)


async def test_exit_0_under_on_failure_is_succeeded(node: Node) -> None:
    await node.wait_phase("ends-failure-0", "Succeeded")


async def test_a_failure_under_on_failure_is_tried_again(node: Node) -> None:
    pod = await node.wait_static("ends-failure-2", lambda p: status_of(p, "c").get("restartCount"), "to restart")
    assert pod["status"]["phase"] == "Running"
    assert status_of(pod, "c")["lastState"]["terminated"]["exitCode"] == 2
