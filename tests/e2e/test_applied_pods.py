"""`bulkhead pods apply` on a real containerd without a cluster: ConfigMaps and Secrets resolve, pods outlive the agent.

Prints the times from the command to a running pod.
"""

import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.cli.what_if.answers import NO_ANSWER
from shared.cri.interface import RuntimeCallError
from shared.model.objects import Object
from tests.support.agents.agent import BIN
from tests.support.agents.world import World, busybox_pod
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS, measure_slowness

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

RUNNING_WITHIN = 3.0  # seconds from the start of the command, lower quartile; an idle machine needs 1.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world


def config_map(name: str, value: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}}


def secret(name: str, value: str) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"PASSWORD": value}}


def pod(name: str) -> Object:
    """A pod with a ConfigMap volume and the variables of a Secret."""
    script = "echo started with $PASSWORD and $(cat /config/key); exec sleep 1000000"
    found = busybox_pod(name, "sh", "-c", script, volumes=[{"name": "c", "configMap": {"name": f"{name}-config"}}])
    container = found["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "c", "mountPath": "/config"}]
    container["envFrom"] = [{"secretRef": {"name": f"{name}-secret"}}]
    return found


def manifests(name: str, value: str = "one") -> str:
    """The pod first: the command sends what it names before it."""
    documents = [pod(name), config_map(f"{name}-config", value), secret(f"{name}-secret", "hunter2")]
    return "\n---\n".join(map(json.dumps, documents))


async def run(world: World, *words: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    """Run `bulkhead` with these words, and the text as its input."""
    return await asyncio.to_thread(
        subprocess.run,
        [str(BIN / "bulkhead"), *words],
        input=text,
        env={**os.environ, "BULKHEAD_HOME": str(world.home.path)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_SECONDS,
        check=False,
    )


async def bulkhead(world: World, *words: str, text: str = "") -> str:
    """Return what `bulkhead pods …` prints; it must succeed."""
    done = await run(world, "pods", *words, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def what_if(world: World, text: str) -> Object:
    """Return the answer of `bulkhead what-if` about the one pod of this text, once podsync answers within its 5 s."""

    async def answered() -> "subprocess.CompletedProcess[str] | None":
        done = await run(world, "what-if", "-", "-o", "json", text=text)
        return done if done.returncode != NO_ANSWER else None

    done = await world.wait_for(answered, "an answer of podsync")
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["pods"]
    return dict(answer)


async def output_of(world: World, name: str, *command: str) -> str:
    """The output of a command in the running container."""
    found = await world.wait_running(name)
    answer = await world.runtime.exec_sync(found.containers[0].id, list(command), 20)
    return answer.stdout.decode()


async def test_a_pod_with_a_configmap_and_a_secret_runs_and_sees_a_change(world: World) -> None:
    absent = await what_if(world, json.dumps(pod("web")))
    assert absent["obstacles"] == ["Secret default/web-secret is absent", "ConfigMap default/web-config is absent"]
    expected = await what_if(world, manifests("web"))
    assert (expected["verdict"], expected["obstacles"]) == ("admitted", [])
    printed = await bulkhead(world, "apply", "-f", "-", text=manifests("web"))
    assert printed.split("\n")[:3] == ["configmap/web-config created", "secret/web-secret created", "pod/web created"]
    before = await world.wait_running("web")
    assert (expected["name"], expected["cgroup"].rpartition("/")[2]) == (before.name, f"pod{before.uid}")
    environment = await output_of(world, "web", "sh", "-c", "echo $PASSWORD $(cat /config/key)")
    assert environment == "hunter2 one\n"
    await bulkhead(world, "apply", "-f", "-", text=json.dumps(config_map("web-config", "two")))

    async def changed() -> bool:
        try:
            return await output_of(world, "web", "cat", "/config/key") == "two"
        except RuntimeCallError:
            return False

    await world.wait_for(changed, "the volume to show the changed ConfigMap", 2 * WAIT_SECONDS)
    after = await world.runtime_pod("web")
    assert after is not None and [one.id for one in after.containers] == [one.id for one in before.containers]


async def test_applied_pods_are_there_after_a_stop_and_a_start_of_the_agent(world: World) -> None:
    await bulkhead(world, "apply", "-f", "-", text=manifests("kept"))
    before = await world.wait_running("kept")
    await world.stop_supervisord()
    await world.start()
    await world.wait_for(lambda: _listed(world, "kept-"), "the pod to be listed again", 2 * WAIT_SECONDS)
    after = await world.wait_running("kept")
    assert [one.id for one in after.containers] == [one.id for one in before.containers]
    assert "kept-config" in await bulkhead(world, "list", "--applied")
    await bulkhead(world, "delete", "-f", "-", text=manifests("kept"))
    await world.wait_gone("kept")
    assert "kept" not in await bulkhead(world, "list", "--applied")


async def _listed(world: World, prefix: str) -> bool:
    return any(pod["metadata"]["name"].startswith(prefix) for pod in await world.pods())


async def test_an_applied_pod_runs_soon(world: World) -> None:
    taken = []
    for number in range(8):
        name = f"quick-{number}"
        began = time.monotonic()
        command = asyncio.create_task(bulkhead(world, "apply", "-f", "-", text=manifests(name)))
        await world.wait_running(name)
        taken.append(time.monotonic() - began)
        await command
    print("seconds from `bulkhead pods apply` to Running:", " ".join(f"{each:.2f}" for each in sorted(taken)))
    assert statistics.quantiles(taken)[0] < RUNNING_WITHIN * max(SLOWNESS, measure_slowness()), taken
