"""Init containers start all over on a real runtime, and end with their pod while they run (pods.md 5.4, A.7)."""

import asyncio
import os
import signal

import pytest

from shared.model.objects import Object
from tests.e2e.behaviour.notes import Notes
from tests.support.agents.behaviour import Node, container, pod_of, status_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("notes"),
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300),
]

IDLE = "note up; exec sleep 1000000"


def pods_of(notes: Notes) -> dict[str, Object]:
    """By manifest name."""

    def one(name: str, script: str) -> Object:
        return notes.container(name, script, file="lost")

    pods = [
        pod_of(
            "init-lost",
            one("c", IDLE),
            initContainers=[one("a", "note a"), one("b", "note b")],
            volumes=[notes.volume()],
        )
    ]
    return {p["metadata"]["name"]: p for p in pods}


async def test_a_new_sandbox_runs_them_all_again(node: Node, notes: Notes) -> None:
    await node.wait_phase("init-lost", "Running")
    await asyncio.to_thread(notes.wait, "lost", "up")
    seen = await node.agent.runtime_pod("init-lost")
    assert seen is not None and seen.sandboxes[0].pid > 0
    os.kill(seen.sandboxes[0].pid, signal.SIGKILL)
    await asyncio.to_thread(notes.wait, "lost", "up", times=2)
    assert notes.words("lost") == ["a", "b", "up", "a", "b", "up"]

    def shown(pod: Object) -> bool:
        counts = [status_of(pod, name).get("restartCount") for name in ("a", "b", "c")]
        return counts == [1, 1, 1] and pod["status"]["phase"] == "Running"

    await node.wait_static("init-lost", shown, "to count a restart of each")
    await node.wait_event("init-lost", "SandboxChanged")


async def test_one_that_is_not_of_the_pod_any_more_leaves_nothing(node: Node) -> None:
    pod = pod_of("init-gone", container("c"), initContainers=[container("a", "sleep 1000000")])
    node.put({"init-gone": pod})
    await node.wait_static("init-gone", lambda p: status_of(p, "a").get("state", {}).get("running"), "to initialize")
    await node.take_away(["init-gone"])
