"""`bulkhead explain` on a real node: why a container was restarted, after any process was killed meanwhile."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.agents.agent import BIN
from tests.support.agents.behaviour import Node, container, pod_of, status_of
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

# A probe that a busy machine delays has not failed.
ALIVE = {"exec": {"command": ["cat", "/tmp/alive"]}, "periodSeconds": 1, "timeoutSeconds": 60}
PROBES = {"startupProbe": {**ALIVE, "failureThreshold": 1000}, "livenessProbe": {**ALIVE, "failureThreshold": 2}}
PODS = {
    "explain-exit": pod_of("explain-exit", container("c", "sleep 1; exit 7")),
    "explain-probe": pod_of("explain-probe", container("c", "touch /tmp/alive; exec sleep 1000", **PROBES)),
    "explain-kill": pod_of("explain-kill", container("c")),
    "explain-image": pod_of("explain-image", container("c", image="bad image")),
    "explain-volume": pod_of(
        "explain-volume",
        container("c", volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        volumes=[{"name": "v", "hostPath": {"path": "/nowhere/at/all", "type": "Directory"}}],
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    node.put(PODS)
    yield
    await node.take_away(PODS)


def explain(node: Node, pod: str, form: str = "json") -> Any:
    command = [str(BIN / "bulkhead"), "explain", pod, "--root-dir", str(node.agent.home.path / "kubelet"), "-o", form]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:  # nothing is written of it yet
        return {"story": [], "restarts": []} if form == "json" else done.stderr
    return json.loads(done.stdout) if form == "json" else done.stdout


async def wait_answer(node: Node, pod: str, text: str, seconds: float = WAIT_SECONDS) -> Any:
    async def found() -> Any:
        return next((a for a in explain(node, pod)["restarts"] if text in a["because"]), None)

    return await node.agent.wait_for(found, lambda: f"{text!r} in {explain(node, pod, 'text')}", seconds)


async def shows(node: Node, pod: str, *texts: str) -> None:
    def lines() -> list[str]:
        return [line["says"] for line in explain(node, pod)["story"]]

    def all_in() -> bool:
        return all(any(text in line for line in lines()) for text in texts)

    await node.agent.wait_for(all_in, lambda: f"{texts} in {lines()}")


async def test_the_story_of_an_exit_has_the_code_and_back_off(node: Node) -> None:
    answer = await wait_answer(node, "explain-exit", "exit code 7")
    assert answer["attempt"] == 1
    await shows(node, "explain-exit", "seen for the first time, from file", "admitted", "sandbox of attempt 0 runs")


async def test_the_story_of_a_failed_probe_has_its_output(node: Node) -> None:
    await node.wait_static("explain-probe", lambda p: status_of(p, "c").get("started"), "to have started")
    await node.inside("explain-probe", "c", "rm", "/tmp/alive")
    answer = await wait_answer(node, "explain-probe", "failed liveness probe")
    assert "No such file" in answer["because"], answer


async def test_the_story_has_a_kill_from_outside_and_goes_on_after_a_kill_of_podsync(node: Node) -> None:
    pod = await node.agent.wait_running("explain-kill")
    await shows(node, "explain-kill", "container c of attempt 0 is started")
    killed = node.agent.kill("podsync")
    await node.agent.wait_back("podsync", killed)
    os.kill(pod.containers[0].pid, signal.SIGKILL)
    await wait_answer(node, "explain-kill", "exit code 137")
    lines = [line["says"] for line in explain(node, "explain-kill")["story"]]
    assert sum("seen for the first time" in line for line in lines) == 1
    assert any("of podsync, which observes the pods" in line for line in lines[2:]), lines


async def test_the_story_names_what_a_pod_waits_for(node: Node) -> None:
    await shows(node, "explain-volume", "waits for volumes v", "volume v cannot be mounted")
    await shows(node, "explain-image", "couldn't parse image name")
