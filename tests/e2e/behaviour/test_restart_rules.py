"""Restart rules of containers, RestartAllContainers, ephemeral containers, on a real runtime (pods.md 5.3, 5.7)."""

import asyncio

import pytest

from shared.kube import paths
from shared.model.objects import Object
from shared.time.timestamps import go_duration
from tests.e2e.behaviour.notes import Notes
from tests.support.agents.behaviour import Node, container, pod_of, status_of
from tests.support.agents.conditions import condition_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.docker,
    pytest.mark.usefixtures("notes"),
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300),
]

FIRST = "if [ -e /out/$FILE.once ]; then note again; {then}; fi; touch /out/$FILE.once; note first; {wait}; exit 42"
FAILING = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
WITH_D = "until grep -q d-up /out/$FILE; do sleep 0.05; done"


def pods_of(notes: Notes) -> dict[str, Object]:
    """By manifest name."""

    def pod(name: str, *containers: Object, **spec: object) -> Object:
        body: Object = {"restartPolicy": "Never", "volumes": [notes.volume()], **spec}
        return pod_of(f"rules-{name}", *containers, **body)

    def ruled(file: str, action: str, then: str = "exec sleep 1000000", wait: str = "sleep 0.3") -> Object:
        rules = [{"action": action, "exitCodes": {"operator": "In", "values": [42]}}]
        fields: Object = {"restartPolicy": "Never", "restartPolicyRules": rules}
        return notes.container("c", FIRST.format(then=then, wait=wait), file=file, **fields)

    beside = notes.container("d", "note d-up; exec sleep 1000000", file="all")
    sidecar = notes.container("s", "note s-up; exec sleep 1000000", file="all", restartPolicy="Always")
    pods = [
        pod("match", ruled("match", "Restart", then="exit 0")),
        pod(
            "all",
            ruled("all", "RestartAllContainers", wait=WITH_D),
            beside,
            initContainers=[notes.container("i", "note i", file="all"), sidecar],
        ),
        pod(
            "killed",
            container("c", "trap 'exit 0' TERM; while :; do sleep 0.1; done", livenessProbe=FAILING),
            restartPolicy="Always",
        ),
        pod("crashed", container("c", "exit 1"), restartPolicy="Always"),
    ]
    return {p["metadata"]["name"]: p for p in pods}


async def test_an_exit_code_that_is_named_restarts_the_container(node: Node) -> None:
    pod = await node.wait_phase("rules-match", "Succeeded")
    assert status_of(pod, "c")["restartCount"] == 1


@pytest.mark.parametrize(("name", "starts_at_once"), [("rules-killed", 2), ("rules-crashed", 1)])
async def test_what_its_probe_kills_is_started_again_once_more_before_it_waits(
    node: Node, name: str, starts_at_once: int
) -> None:
    """The kubelet starts it in the sync of the kill, where the back-off goes by the instance that ended before."""

    def waits(pod: Object) -> bool:
        shown = status_of(pod, "c")
        waiting = (shown.get("state") or {}).get("waiting") or {}
        # By the time of a look on a slow machine it may have started again, and waits longer.
        beyond = shown.get("restartCount", 0) - starts_at_once
        message = f"back-off {go_duration(10 << max(beyond, 0))} restarting failed"
        return waiting.get("reason") == "CrashLoopBackOff" and beyond >= 0 and waiting["message"].startswith(message)

    await node.wait_static(name, waits, "to wait as long as its starts ask for")


async def test_all_containers_start_over_in_the_same_sandbox(node: Node, notes: Notes) -> None:
    for word, times in (("again", 1), ("s-up", 2), ("d-up", 2)):
        await asyncio.to_thread(notes.wait, "all", word, times=times)

    def over(pod: Object) -> bool:
        counts = {name: status_of(pod, name).get("restartCount") for name in ("i", "s", "c", "d")}
        return counts == dict.fromkeys("iscd", 1) and pod["status"]["phase"] == "Running"

    pod = await node.wait_static("rules-all", over, "to count a restart of each")
    words = await notes.wait_words("all", 8)
    assert sorted(words) == sorted([*2 * ["i", "s-up", "d-up"], "first", "again"])
    assert words.index("i", 1) > words.index("first"), "the pod initialises again"
    seen = await node.agent.runtime_pod("rules-all")
    assert seen is not None and [s.attempt for s in seen.sandboxes] == [0]
    assert status_of(pod, "d")["lastState"]["terminated"]["reason"] == "RestartingAllContainers"
    assert condition_of(pod, "AllContainersRestarting")["status"] == "False"


async def test_an_ephemeral_container_is_added_to_a_pod_that_runs_and_runs_once(node: Node) -> None:
    name = "rules-ephemeral"
    await node.create(node.pod(name, "sleep", "1000000"))
    await node.wait_ready(name)
    debug = container("debug", "echo looked; exit 3", targetContainerName="main", terminationMessagePolicy="File")
    body = {"apiVersion": "v1", "kind": "EphemeralContainers", "metadata": {"name": name, "namespace": "default"}}
    path = f"{paths.pod('default', name)}/ephemeralcontainers"
    await node.plane.admin.update(path, body | {"ephemeralContainers": [debug]})

    def ended(pod: Object) -> object:
        return (status_of(pod, "debug").get("state") or {}).get("terminated")

    pod = await node.wait_pod(name, ended, "to run its ephemeral container")
    shown = status_of(pod, "debug")
    assert (shown["state"]["terminated"]["exitCode"], shown["restartCount"]) == (3, 0)
    assert pod["status"]["phase"] == "Running" and condition_of(pod, "Ready")["status"] == "True"
    await node.delete_pod(name)
    await node.wait_gone(name)
