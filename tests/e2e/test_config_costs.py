"""What `bulkhead config diff` states of running pods is what a reload then does to them."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.support.agents.agent import BIN
from tests.support.agents.world import ExecutedWorld, World, busybox_pod
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with ExecutedWorld() as world:
        world.put_manifest("steady", busybox_pod("steady"))
        await world.wait_running("steady")
        yield world


async def effects(world: World, **fields: Any) -> dict[str, str]:
    """What the command states of the change of these fields, by name; then the reload of it begins."""
    file = world.home.path / "kubelet.yaml"
    kubelet, *others = yaml.safe_load_all(file.read_text())
    new = world.home.path / "new.yaml"
    new.write_text(yaml.safe_dump_all([kubelet | fields, *others]))
    done = await asyncio.to_thread(
        subprocess.run,
        [str(BIN / "bulkhead"), "config", "diff", "running", str(new), "-o", "json"],
        env={**os.environ, "BULKHEAD_HOME": str(world.home.path)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    new.replace(file)
    world.kill("bootstrap", signal.SIGHUP)
    return {one["name"]: one["pods"] for one in json.loads(done.stdout)}


async def container(world: World) -> str:
    """The running container of the pod."""
    (found,) = (await world.wait_running("steady")).containers
    return found.id


async def test_a_value_for_later_pods_leaves_the_container_and_another_cgroup_root_replaces_it(world: World) -> None:
    before, podsync = await container(world), world.pid_of("podsync")
    assert await effects(world, maxPods=5, podPidsLimit=1000) == {"maxPods": "later", "podPidsLimit": "later"}
    await world.wait_back("podsync", podsync)
    assert await container(world) == before

    root = f"/{world.home.path.name}/other"
    assert await effects(world, cgroupRoot=root) == {"cgroupRoot": "restart"}

    async def replaced() -> bool:
        found = await world.runtime_pod("steady")
        return found is not None and [c.id for c in found.containers if c.pid] not in ([], [before])

    await world.wait_for(replaced, "the container to be replaced in the other cgroup")


async def test_another_static_pod_path_ends_the_static_pods(world: World) -> None:
    other = Path(world.home.path) / "other-manifests"
    other.mkdir()
    assert await effects(world, staticPodPath=str(other)) == {"staticPodPath": "end"}
    await world.wait_gone("steady")
