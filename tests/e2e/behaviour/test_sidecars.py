"""Sidecars on a real runtime: the gate before the next container, restarts, and the end of a pod (pods.md 5.4, 9.1)."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.behaviour import Node, pod_of, status_of
from tests.cluster import condition_of
from tests.e2e.behaviour.notes import Notes

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(180)]

UP = "trap 'note s-term; exit 0' TERM; note s-up; while :; do sleep 1 & wait $!; done"
MAIN = "note c-up; exec sleep 1000000"


def pods_of(notes: Notes) -> dict[str, Object]:
    """By manifest name."""

    def pod(name: str, main: str, *init: Object, **spec: Any) -> Object:
        body = {"initContainers": list(init), "volumes": [notes.volume()], **spec}
        return pod_of(f"sidecar-{name}", notes.container("c", main, file=name), grace=5, **body)

    def sidecar(file: str, script: str = UP, name: str = "s", **fields: object) -> Object:
        return notes.container(name, script, file=file, restartPolicy="Always", **fields)

    def probe(file: str, **fields: object) -> Object:
        command = ["sh", "-c", f"test -e /out/{file}"]
        return {"exec": {"command": command}, "periodSeconds": 1, "failureThreshold": 300, **fields}

    slow = sidecar("slow", "note s-begins; until grep -q c-up /out/slow; do sleep 0.1; done; note s-up; sleep 1000000")
    pods = [
        pod("beside", MAIN, sidecar("beside"), notes.container("a", "note a", file="beside")),
        pod("gate", MAIN, sidecar("gate", startupProbe=probe("gate.go")), notes.container("a", "note a", file="gate")),
        pod("slow", MAIN, slow),
        pod("done", "note c-up; sleep 1; note c-done", sidecar("done"), restartPolicy="Never"),
        pod("fails", "note c-up; sleep 1; exit 6", sidecar("fails"), restartPolicy="Never"),
        pod("on-failure", "note c-up; sleep 1", sidecar("on-failure"), restartPolicy="OnFailure"),
        pod("ends", MAIN, sidecar("ends", "note s-up; sleep 0.5; exit 0"), restartPolicy="Never"),
        pod("crash", MAIN, sidecar("crash", "note s-up; exit 1"), notes.container("a", "note a", file="crash")),
        pod("alive", MAIN, sidecar("alive", livenessProbe=probe("alive.yes", failureThreshold=2))),
        pod("ready", MAIN, sidecar("ready", readinessProbe=probe("ready.yes"))),
    ]
    return {p["metadata"]["name"]: p for p in pods}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def notes(node: Node, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notes]:
    notes = Notes(Path(tmp_path_factory.mktemp("notes")))
    pods = pods_of(notes)
    node.put(pods)
    yield notes
    await node.take_away(pods)


async def test_it_runs_before_the_next_and_beside_the_regular_container(node: Node, notes: Notes) -> None:
    pod = await node.wait_phase("sidecar-beside", "Running")
    assert [w for w in await notes.wait_words("beside", 3) if w != "s-up"] == ["a", "c-up"]
    shown = status_of(pod, "s")
    assert "running" in shown["state"] and (shown["started"], shown["ready"]) == (True, True)
    assert "s" in [s["name"] for s in pod["status"]["initContainerStatuses"]]


async def test_its_startup_probe_holds_the_next_back_until_it_succeeds(node: Node, notes: Notes) -> None:
    def up(pod: Object) -> object:
        return (status_of(pod, "s").get("state") or {}).get("running")

    pod = await node.wait_static("sidecar-gate", up, "to run its sidecar")
    assert pod["status"]["phase"] == "Pending" and status_of(pod, "s")["started"] is False
    assert await notes.wait_words("gate", 1) == ["s-up"] and await node.instances("sidecar-gate", "a") == []
    (notes.directory / "gate.go").touch()
    pod = await node.wait_phase("sidecar-gate", "Running")
    assert await notes.wait_words("gate", 3) == ["s-up", "a", "c-up"]
    assert status_of(pod, "s")["started"] is True


async def test_without_a_startup_probe_it_is_enough_that_it_runs(node: Node, notes: Notes) -> None:
    await node.wait_phase("sidecar-slow", "Running")
    await asyncio.to_thread(notes.wait, "slow", "s-up")
    assert notes.words("slow") == ["s-begins", "c-up", "s-up"]


@pytest.mark.parametrize(("name", "phase"), [("done", "Succeeded"), ("fails", "Failed"), ("on-failure", "Succeeded")])
async def test_it_does_not_keep_a_finished_pod_alive(node: Node, notes: Notes, name: str, phase: str) -> None:
    pod = await node.wait_phase(f"sidecar-{name}", phase)
    shown = status_of(pod, "s")
    assert shown["restartCount"] == 0 and "terminated" in shown["state"]
    assert notes.words(name).count("s-up") == 1 and notes.words(name)[-1] == "s-term"
    if name == "done":
        assert notes.moment("done", "c-done") < notes.moment("done", "s-term")


async def test_one_that_ends_is_started_again_though_the_pod_never_restarts(node: Node, notes: Notes) -> None:
    pod = await node.wait_static("sidecar-ends", lambda p: status_of(p, "s").get("restartCount"), "to restart it")
    assert pod["status"]["phase"] == "Running"
    assert status_of(pod, "s")["lastState"]["terminated"]["exitCode"] == 0
    assert status_of(pod, "c")["restartCount"] == 0


async def test_its_crash_loop_holds_nothing_up(node: Node, notes: Notes) -> None:
    def waits(pod: Object) -> bool:
        return (status_of(pod, "s").get("state", {}).get("waiting") or {}).get("reason") == "CrashLoopBackOff"

    pod = await node.wait_static("sidecar-crash", waits, "to wait for the sidecar's next restart")
    await asyncio.to_thread(notes.wait, "crash", "c-up")
    message = status_of(pod, "s")["state"]["waiting"]["message"]
    assert re.match(r"back-off (10|20|40)s restarting failed container=s pod=sidecar-crash-", message)
    assert condition_of(pod, "Ready")["status"] == "False"


async def test_a_failed_liveness_probe_restarts_it_and_nothing_else(node: Node) -> None:
    pod = await node.wait_static("sidecar-alive", lambda p: status_of(p, "s").get("restartCount"), "to restart it")
    assert status_of(pod, "c")["restartCount"] == 0
    killing = await node.wait_event("sidecar-alive", "Killing", "liveness")
    assert killing[1:] == ("Init container s failed liveness probe", "spec.initContainers{s}")


async def test_its_readiness_counts_for_the_pod_and_holds_nothing_back(node: Node, notes: Notes) -> None:
    pod = await node.wait_phase("sidecar-ready", "Running")
    assert condition_of(pod, "Ready")["message"] == "containers with unready status: [s]"
    assert status_of(pod, "c")["ready"] is True
    (notes.directory / "ready.yes").touch()
    await node.wait_static("sidecar-ready", lambda p: condition_of(p, "Ready")["status"] == "True", "to be ready")


async def test_a_death_of_podsync_takes_no_start_of_it_back(node: Node, notes: Notes) -> None:
    (notes.directory / "gate.go").touch()
    await node.wait_phase("sidecar-gate", "Running")
    before = await node.agent.runtime_pod("sidecar-gate")
    killed = node.agent.kill("podsync")
    await node.agent.wait_back("podsync", killed)
    pod = await node.wait_phase("sidecar-gate", "Running")
    after = await node.agent.runtime_pod("sidecar-gate")
    assert before is not None and after is not None
    assert {c.id for c in before.containers} == {c.id for c in after.containers}
    assert status_of(pod, "s")["started"] is True
