"""Init containers on a real runtime: their order, what a failure means, and starting all over (pods.md 5.4, A.7)."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from shared.model.runtime import ContainerState
from shared.timestamps import go_duration
from tests.behaviour import Node, container, pod_of, status_of
from tests.cluster import condition_of
from tests.e2e.behaviour.notes import Notes

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(180)]

IDLE = "note up; exec sleep 1000000"
ONCE = "if [ -e /out/$FILE.failed ]; then note done; exit 0; fi; touch /out/$FILE.failed; note failed; exit 4"


def pods_of(notes: Notes) -> dict[str, Object]:
    """By manifest name."""

    def pod(name: str, *init: Object, main: Object | None = None, **spec: Any) -> Object:
        volumes = [notes.volume(), {"name": "shared", "emptyDir": {}}]
        return pod_of(f"init-{name}", main or one("c", IDLE, name), initContainers=list(init), volumes=volumes, **spec)

    def one(name: str, script: str, file: str, **fields: object) -> Object:
        made = notes.container(name, script, file=file, **fields)
        return made | {"volumeMounts": [*made["volumeMounts"], {"name": "shared", "mountPath": "/shared"}]}

    absent = {"image": "localhost:1/absent:1", "imagePullPolicy": "Never"}
    wait = "note waits; until [ -e /out/release ]; do sleep 0.05; done; note released"
    pods = [
        pod(
            "order",
            one("a", "note a-begins; sleep 0.5; echo made > /shared/a; note a-ends", "order"),
            one("b", "note b-begins; cat /shared/a > /shared/b; note b-ends", "order"),
            main=one("c", "note c-begins; cat /shared/b; exec sleep 1000000", "order"),
        ),
        pod("never", one("a", "note a; exit 7", "never"), one("b", "note b", "never"), restartPolicy="Never"),
        pod("once", one("a", ONCE, "once"), restartPolicy="OnFailure"),
        pod("crash", one("a", "note a; exit 3", "crash"), one("b", "note b", "crash")),
        pod("absent", one("a", "note a", "absent", **absent), one("b", "note b", "absent")),
        pod("regular", one("a", "note a", "regular"), main=one("c", "note c; sleep 0.5; exit 1", "regular")),
        pod("lost", one("a", "note a", "lost"), one("b", "note b", "lost")),
        pod("dead", one("a", wait, "dead"), one("b", "note b", "dead")),
        pod("memory", one("a", "note a", "memory"), main=one("c", "note c; exit 0", "memory"), restartPolicy="Never"),
    ]
    return {p["metadata"]["name"]: p for p in pods}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def notes(node: Node, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notes]:
    notes = Notes(Path(tmp_path_factory.mktemp("notes")))
    pods = pods_of(notes)
    node.put(pods)
    yield notes
    await node.take_away(pods)


async def test_they_run_one_after_the_other_and_see_what_the_one_before_has_left(node: Node, notes: Notes) -> None:
    pod = await node.wait_phase("init-order", "Running")
    assert await notes.wait_words("order", 5) == ["a-begins", "a-ends", "b-begins", "b-ends", "c-begins"]
    assert await node.wait_log("init-order", "c") == ["made"]
    assert [s["name"] for s in pod["status"]["initContainerStatuses"]] == ["a", "b"]
    assert condition_of(pod, "Initialized")["status"] == "True"


async def test_one_that_is_done_shows_that_and_is_ready(node: Node) -> None:
    pod = await node.wait_phase("init-order", "Running")
    done = status_of(pod, "a")
    assert (done["ready"], done["started"], done["restartCount"]) == (True, False, 0)
    assert done["state"]["terminated"]["reason"] == "Completed"


async def test_their_events_name_the_list_they_stand_in(node: Node) -> None:
    await node.wait_phase("init-order", "Running")
    assert (await node.wait_event("init-order", "Started"))[2] == "spec.initContainers{a}"


async def test_a_failure_under_never_fails_the_pod_and_nothing_further_runs(node: Node, notes: Notes) -> None:
    pod = await node.wait_phase("init-never", "Failed")
    assert notes.words("never") == ["a"]
    assert status_of(pod, "a")["state"]["terminated"]["exitCode"] == 7
    assert status_of(pod, "c")["state"] == {"waiting": {"reason": "PodInitializing"}}
    initialized = condition_of(pod, "Initialized")
    assert (initialized["status"], initialized["reason"]) == ("False", "ContainersNotInitialized")
    assert await node.instances("init-never", "b") == [] and await node.instances("init-never", "c") == []


async def test_one_that_fails_once_is_run_again_and_the_pod_goes_on(node: Node, notes: Notes) -> None:
    pod = await node.wait_phase("init-once", "Running")
    assert await notes.wait_words("once", 3) == ["failed", "done", "up"]
    again = status_of(pod, "a")
    assert again["restartCount"] == 1
    assert again["lastState"]["terminated"]["exitCode"] == 4


async def test_one_that_always_fails_waits_longer_and_keeps_the_pod_pending(node: Node, notes: Notes) -> None:
    def waits(pod: Object) -> bool:
        shown, full_name = status_of(pod, "a"), f"{pod['metadata']['name']}_default({pod['metadata']['uid']})"
        waiting = shown.get("state", {}).get("waiting") or {}
        # By the time of a look on a slow machine it may have started again, and waits longer.
        seconds = go_duration(10 << max(shown.get("restartCount", 0) - 1, 0))
        return bool(waiting.get("message") == f"back-off {seconds} restarting failed container=a pod={full_name}")

    pod = await node.wait_static("init-crash", waits, "to wait for its next restart")
    assert status_of(pod, "a")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert pod["status"]["phase"] == "Pending"
    assert condition_of(pod, "Initialized")["message"] == "containers with incomplete status: [a b]"
    assert set(notes.words("crash")) == {"a"}


async def test_an_image_that_is_not_there_holds_the_following_back(node: Node, notes: Notes) -> None:
    def refused(pod: Object) -> bool:
        return (status_of(pod, "a").get("state", {}).get("waiting") or {}).get("reason") == "ErrImageNeverPull"

    pod = await node.wait_static("init-absent", refused, "to miss its image")
    assert status_of(pod, "b")["state"]["waiting"]["reason"] == "PodInitializing"
    assert notes.words("absent") == [] and await node.instances("init-absent", "b") == []


async def test_a_regular_container_that_is_restarted_does_not_bring_them_back(node: Node, notes: Notes) -> None:
    await node.wait_static("init-regular", lambda p: status_of(p, "c").get("restartCount"), "to restart")
    assert notes.words("regular").count("a") == 1


async def test_a_pod_that_ran_to_its_end_has_succeeded(node: Node) -> None:
    pod = await node.wait_phase("init-memory", "Succeeded")
    assert condition_of(pod, "Initialized")["reason"] == "PodCompleted"


async def test_a_new_sandbox_runs_them_all_again(node: Node, notes: Notes) -> None:
    await node.wait_phase("init-lost", "Running")
    seen = await node.agent.runtime_pod("init-lost")
    assert seen is not None and seen.sandboxes[0].pid > 0
    os.kill(seen.sandboxes[0].pid, signal.SIGKILL)
    await asyncio.to_thread(notes.wait, "lost", "up", 60, 2)
    assert notes.words("lost") == ["a", "b", "up", "a", "b", "up"]

    def shown(pod: Object) -> bool:
        counts = [status_of(pod, name).get("restartCount") for name in ("a", "b", "c")]
        return counts == [1, 1, 1] and pod["status"]["phase"] == "Running"

    await node.wait_static("init-lost", shown, "to count a restart of each")
    await node.wait_event("init-lost", "SandboxChanged")


async def test_a_death_of_podsync_in_the_middle_costs_nothing(node: Node, notes: Notes) -> None:
    await asyncio.to_thread(notes.wait, "dead", "waits")
    killed = node.agent.kill("podsync")
    await node.agent.wait_back("podsync", killed)
    (notes.directory / "release").touch()
    await node.wait_phase("init-dead", "Running")
    assert await notes.wait_words("dead", 4) == ["waits", "released", "b", "up"]
    runs = [c for c in await node.instances("init-dead", "c") if c.state is ContainerState.RUNNING]
    assert [c.attempt for c in runs] == [0]


async def test_one_that_is_not_of_the_pod_any_more_leaves_nothing(node: Node) -> None:
    pod = pod_of("init-gone", container("c"), initContainers=[container("a", "sleep 1000000")])
    node.put({"init-gone": pod})
    await node.wait_static("init-gone", lambda p: status_of(p, "a").get("state", {}).get("running"), "to initialize")
    await node.take_away(["init-gone"])
