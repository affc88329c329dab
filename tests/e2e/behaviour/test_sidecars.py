"""Sidecars run on a real runtime beside the regular container, and end after it (pods.md 5.4, 9.1)."""

from typing import Any

import pytest

from shared.model.objects import Object
from tests.e2e.behaviour.notes import Notes
from tests.support.agents.behaviour import Node, pod_of, status_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("notes"),
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300),
]

UP = "trap 'note s-term; exit 0' TERM; note s-up; while :; do sleep 1 & wait $!; done"
MAIN = "note c-up; exec sleep 1000000"
WITH_S = "until grep -q s-up /out/$FILE; do sleep 0.1; done"  # by then it handles TERM


def pods_of(notes: Notes) -> dict[str, Object]:
    """By manifest name."""

    def pod(name: str, main: str, *init: Object, **spec: Any) -> Object:
        body = {"initContainers": list(init), "volumes": [notes.volume()], **spec}
        return pod_of(f"sidecar-{name}", notes.container("c", main, file=name), grace=5, **body)

    def sidecar(file: str) -> Object:
        return notes.container("s", UP, file=file, restartPolicy="Always")

    pods = [
        pod("beside", MAIN, sidecar("beside"), notes.container("a", "note a", file="beside")),
        pod("done", f"note c-up; {WITH_S}; note c-done", sidecar("done"), restartPolicy="Never"),
    ]
    return {p["metadata"]["name"]: p for p in pods}


async def test_it_runs_before_the_next_and_beside_the_regular_container(node: Node, notes: Notes) -> None:
    pod = await node.wait_phase("sidecar-beside", "Running")
    assert [w for w in await notes.wait_words("beside", 3) if w != "s-up"] == ["a", "c-up"]
    shown = status_of(pod, "s")
    assert "running" in shown["state"] and (shown["started"], shown["ready"]) == (True, True)
    assert "s" in [s["name"] for s in pod["status"]["initContainerStatuses"]]


async def test_it_does_not_keep_a_finished_pod_alive(node: Node, notes: Notes) -> None:
    pod = await node.wait_phase("sidecar-done", "Succeeded")
    shown = status_of(pod, "s")
    assert shown["restartCount"] == 0 and "terminated" in shown["state"]
    assert notes.words("done").count("s-up") == 1 and notes.words("done")[-1] == "s-term"
    assert notes.moment("done", "c-done") < notes.moment("done", "s-term")
