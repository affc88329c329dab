"""`kubelet --runonce` on a real containerd: pods that end or become Ready, the result, and an interrupted run."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from shared.agent.run_once import load_record
from shared.model.runtime import ContainerState
from tests.support.agents.agent import BIN
from tests.support.agents.world import World, busybox_pod
from tests.support.runtime.containerd import PrivateContainerd, started_containerd
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

RUN_SECONDS = 3 * WAIT_SECONDS


@pytest.fixture
def containerd() -> Iterator[PrivateContainerd]:
    with started_containerd() as containerd:
        yield containerd


@pytest_asyncio.fixture
async def world(containerd: PrivateContainerd) -> AsyncIterator[World]:
    """A home with a containerd; no agent runs."""
    async with World(containerd=containerd, start=False) as world:
        yield world


def start(world: World, *flags: str) -> "subprocess.Popen[str]":
    """`kubelet --runonce` with the configuration of the world."""
    arguments = (world.home.path / "kubelet.args").read_text().split()
    return subprocess.Popen(
        [str(BIN / "kubelet"), *arguments, "--runonce", *flags],
        env={**os.environ, "BULKHEAD_HOME": str(world.home.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


async def test_pods_run_to_their_end_or_until_they_are_ready(world: World) -> None:
    world.put_manifest("good", busybox_pod("good", "true", restartPolicy="Never"))
    world.put_manifest("bad", busybox_pod("bad", "sh", "-c", "exit 3", restartPolicy="Never"))
    world.put_manifest("web", busybox_pod("web"))
    kubelet = start(world, "--output=json")
    out, err = await asyncio.to_thread(kubelet.communicate, timeout=RUN_SECONDS)
    assert kubelet.returncode == 1, err
    found = json.loads(out)
    assert {pod["name"].rpartition("-node")[0]: (pod["outcome"], pod["message"]) for pod in found["pods"]} == {
        "good": ("Succeeded", ""),
        "bad": ("Failed", "container main ended with exit code 3"),
        "web": ("Ready", ""),
    }
    assert "run once: these pods keep running: default/web" in err
    assert "run once: default/bad" in err, "progress is logged"
    left = await world.runtime_pod("web")
    assert left is not None and left.containers[0].state is ContainerState.RUNNING


async def test_good_pods_exit_with_zero_and_a_bad_manifest_with_one(world: World) -> None:
    world.put_manifest("good", busybox_pod("good", "true", restartPolicy="OnFailure"))
    kubelet = start(world)
    out, err = await asyncio.to_thread(kubelet.communicate, timeout=RUN_SECONDS)
    assert kubelet.returncode == 0, err
    head, line = out.splitlines()
    assert head.split() == ["NAMESPACE", "POD", "RESULT", "MESSAGE"]
    assert line.split() == ["default", "good-node-a", "Succeeded"]
    world.put_manifest("broken", "kind: Pod\nspec: 3\n")
    kubelet = start(world)
    _, err = await asyncio.to_thread(kubelet.communicate, timeout=RUN_SECONDS)
    assert kubelet.returncode == 1
    assert "broken.yaml" in err


async def test_an_interrupted_run_names_the_pod_that_is_not_done(world: World) -> None:
    world.put_manifest("slow", busybox_pod("slow", "sleep", "100000", restartPolicy="Never"))
    kubelet = start(world)

    def running() -> bool:
        record = load_record(world.home.run_dir)
        return record is not None and any(pod.outcome == "Running" for pod in record.pods)

    await world.wait_for(running, "the pod to run", RUN_SECONDS)
    kubelet.send_signal(signal.SIGTERM)
    out, err = await asyncio.to_thread(kubelet.communicate, timeout=RUN_SECONDS)
    assert kubelet.returncode == 1
    assert out.splitlines()[1].split() == ["default", "slow-node-a", "Running"]
    assert "run once: interrupted; not done, and left as they are: default/slow-node-a" in err
    left = await world.runtime_pod("slow")
    assert left is not None and left.containers[0].state is ContainerState.RUNNING
