"""A killed pleg costs no probe its count: nothing flaps, nothing is forgotten, nothing is killed for it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.support.agents.behaviour import container, pod_of, status_of
from tests.support.agents.world import World

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

KILLS = 4
PERIOD = 2  # seconds; longer than pleg takes to come back


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world


def probe(*command: str, **fields: Any) -> Object:
    return {"exec": {"command": list(command)}, "periodSeconds": PERIOD, "timeoutSeconds": 10, **fields}


async def restart_pleg(world: World) -> None:
    world.reset_start_counts()
    await world.wait_back("pleg", world.kill("pleg"))


def memories(world: World, container_id: str) -> dict[str, Any]:
    """What is kept of the instance's probes, by kind."""
    kept = [json.loads(file.read_text()) for file in (world.home.run_dir / "probes").glob("*.json")]
    entries = [entry for pod in kept for entry in pod if entry["container_id"] == container_id]
    return {"liveness": {"in_a_row": 0}} | {entry["kind"]: entry for entry in entries}


async def test_kill_after_kill_nothing_flaps_and_nothing_is_restarted(world: World) -> None:
    ready = container("c", readinessProbe=probe("true"), livenessProbe=probe("true", failureThreshold=1))
    world.put_manifest("steady", pod_of("steady", ready))

    async def shown() -> Object:
        return status_of(await world.pod("steady") or {}, "c")

    async def is_ready() -> bool:
        return bool((await shown()).get("ready"))

    await world.wait_for(is_ready, "the pod to be ready")
    first = (await shown())["containerID"]
    flaps: list[Object] = []

    async def watch() -> None:
        while True:
            now = await shown()
            if now and (not now["ready"] or now["containerID"] != first):
                flaps.append(now)
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    try:
        for _ in range(KILLS):
            await restart_pleg(world)
            before = time.monotonic()
            await world.wait_beats("pleg", after=before + PERIOD, seconds=PERIOD + 60)
    finally:
        watching.cancel()
    assert flaps == []
    world.remove_manifest("steady")
    await world.wait_gone("steady")


async def test_two_failures_before_a_kill_need_one_more_after_it(world: World, tmp_path: Path) -> None:
    # Each try that fails notes its instance: the moment at which the first process of the container began.
    command = "cut -d' ' -f22 /proc/1/stat > /tmp/me; [ ! -e /tries/dead ] || { cat /tmp/me >> /tries/failed; false; }"
    probed = container(
        "c",
        livenessProbe=probe("sh", "-c", command, failureThreshold=3),
        volumeMounts=[{"name": "tries", "mountPath": "/tries"}],
    )
    tries = {"name": "tries", "hostPath": {"path": str(tmp_path)}}
    world.put_manifest("failing", pod_of("failing", probed, volumes=[tries]))
    pod = await world.wait_running("failing")
    first = pod.containers[0].id
    await world.wait_for(lambda: memories(world, first)["liveness"]["in_a_row"] == 1, "the first try to end well")
    (tmp_path / "dead").touch()
    await world.wait_for(lambda: memories(world, first)["liveness"]["in_a_row"] == 2, "two failures")
    assert memories(world, first)["liveness"]["last"] == "failure"
    await restart_pleg(world)

    async def restarted() -> bool:
        seen = await world.runtime_pod("failing")
        return seen is not None and any(c.attempt == 1 for c in seen.containers)

    await world.wait_for(restarted, "the container to be restarted")
    identity, *_ = tried = (tmp_path / "failed").read_text().split()
    assert tried.count(identity) in (3, 4), "one may have been under way when pleg was killed; five would be all again"
    world.remove_manifest("failing")
    await world.wait_gone("failing")


async def test_a_result_that_no_follower_has_yet_is_published_by_the_next_process(world: World, tmp_path: Path) -> None:
    """podsync is stopped while the probe fails and pleg is killed: the restart comes all the same, once."""
    probed = container(
        "c",
        livenessProbe=probe("test", "!", "-e", "/tries/dead", failureThreshold=1),
        volumeMounts=[{"name": "tries", "mountPath": "/tries"}],
    )
    tries = {"name": "tries", "hostPath": {"path": str(tmp_path)}}
    world.put_manifest("unheard", pod_of("unheard", probed, volumes=[tries]))
    first = (await world.wait_running("unheard")).containers[0].id
    await world.wait_for(lambda: memories(world, first)["liveness"]["in_a_row"], "the first try")
    world.reset_start_counts()
    old = world.kill("podsync")
    (tmp_path / "dead").touch()
    await world.wait_for(lambda: memories(world, first)["liveness"].get("held"), "the failure")
    await restart_pleg(world)
    await world.wait_back("podsync", old)
    (tmp_path / "dead").unlink()

    async def restarted() -> bool:
        seen = await world.runtime_pod("unheard")
        return seen is not None and seen.containers[0].id != first

    await world.wait_for(restarted, "the container to be restarted")
    world.remove_manifest("unheard")
    await world.wait_gone("unheard")
