"""What a container leaves behind as its last words, and what of it the status shows."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.support.agents.behaviour import Node, container, pod_of, status_of

pytestmark = [pytest.mark.root, pytest.mark.docker, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}
# The file is a mount of its own: it can be neither removed nor replaced, only written.
ATTACK = (
    "rm -f /dev/termination-log 2>/dev/null; ln -sf /etc/shadow /dev/termination-log 2>/dev/null;"
    " mkfifo /dev/termination-log 2>/dev/null; mv /etc/passwd /dev/termination-log 2>/dev/null;"
    " test -f /dev/termination-log && echo -n still here >> /dev/termination-log"
)

PODS = {
    pod["metadata"]["name"]: pod
    for pod in (
        pod_of(
            "messages-once",
            container("file", "echo -n bye > /dev/termination-log; exit 3"),
            restartPolicy="Never",
        ),
        pod_of(
            "messages-odd",
            container("attack", ATTACK),
            restartPolicy="Never",
        ),
        pod_of("messages-again", container("c", "echo -n round >> /dev/termination-log; exit 1")),
        pod_of(
            "messages-missing",
            container("c", command=["/no/such/program"], **FALLBACK),
            restartPolicy="Never",
        ),
    )
}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    node.put(PODS)
    yield
    await node.take_away(PODS)


async def message(node: Node, name: str, container_name: str) -> str:
    """The message of the container's terminated state, once it is there."""
    pod = await node.wait_static(name, lambda pod: _ended(pod, container_name), "to end")
    return str(_ended(pod, container_name).get("message", ""))


def _ended(pod: Object, container_name: str) -> Object:
    found = status_of(pod, container_name)
    return (found.get("state") or {}).get("terminated") or (found.get("lastState") or {}).get("terminated") or {}


async def test_it_is_what_was_written_into_the_file(node: Node) -> None:
    assert await message(node, "messages-once", "file") == "bye"


async def test_the_container_cannot_put_something_else_in_its_place(node: Node) -> None:
    text = await message(node, "messages-odd", "attack")
    assert text.endswith("still here") and "root:" not in text.replace("root:x:0:0:root:/root:/bin/sh", "")


async def test_every_run_has_a_file_of_its_own(node: Node) -> None:
    await node.wait_static("messages-again", lambda p: status_of(p, "c").get("restartCount", 0) >= 1, "to restart")
    assert await message(node, "messages-again", "c") == "round"


async def test_the_message_of_the_runtime_comes_first(node: Node) -> None:
    text = await message(node, "messages-missing", "c")
    assert "/no/such/program" in text
