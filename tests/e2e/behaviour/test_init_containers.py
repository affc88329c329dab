"""Init containers on a real runtime: their order, what a failure means, and starting all over (pods.md 5.4, A.7)."""

import asyncio
import os
import signal
from typing import Any

import pytest

from shared.model.objects import Object
from tests.e2e.behaviour.notes import Notes
from tests.support.agents.behaviour import Node, container, pod_of, status_of
from tests.support.agents.conditions import condition_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("notes"),
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300),
]

IDLE = "note up; exec sleep 1000000"


def pods_of(notes: Notes) -> dict[str, Object]:
    """By manifest name."""

    def pod(name: str, *init: Object, main: Object | None = None, **spec: Any) -> Object:
        volumes = [notes.volume(), {"name": "shared", "emptyDir": {}}]
        return pod_of(f"init-{name}", main or one("c", IDLE, name), initContainers=list(init), volumes=volumes, **spec)

    def one(name: str, script: str, file: str, **fields: object) -> Object:
        made = notes.container(name, script, file=file, **fields)
        return made | {"volumeMounts": [*made["volumeMounts"], {"name": "shared", "mountPath": "/shared"}]}

    pods = [
        pod(
            "order",
            one("a", "note a-begins; sleep 0.5; echo made > /shared/a; note a-ends", "order"),
            one("b", "note b-begins; cat /shared/a > /shared/b; note b-ends", "order"),
            main=one("c", "note c-begins; cat /shared/b; exec sleep 1000000", "order"),
        ),
        pod("lost", one("a", "note a", "lost"), one("b", "note b", "lost")),
    ]
    return {p["metadata"]["name"]: p for p in pods}


async def test_they_run_one_after_the_other_and_see_what_the_one_before_has_left(node: Node, notes: Notes) -> None:
    pod = await node.wait_phase("init-order", "Running")
    assert await notes.wait_words("order", 5) == ["a-begins", "a-ends", "b-begins", "b-ends", "c-begins"]
    assert await node.wait_log("init-order", "c") == ["made"]
    assert [s["name"] for s in pod["status"]["initContainerStatuses"]] == ["a", "b"]
    assert condition_of(pod, "Initialized")["status"] == "True"


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
