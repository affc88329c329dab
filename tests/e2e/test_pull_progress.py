"""A real containerd pulls from a slow registry that stalls: how far the pull is, is shown until it ends."""

import asyncio
import json
import math
import subprocess
from pathlib import Path

import pytest

from shared.model.objects import Object
from tests.support.agents.agent import BIN
from tests.support.agents.world import World, busybox_pod
from tests.support.runtime.registry import Registry
from tests.support.runtime.throttled import Throttled
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

MEBIBYTE = 1 << 20
WAIT = 2 * WAIT_SECONDS


async def waits_for(world: World, name: str) -> str:
    """What `bulkhead status` shows that the pod waits for."""
    return str(next((row["waits_for"] for row in (await status(world))["pods"] if row["name"].startswith(name)), ""))


async def status(world: World) -> Object:
    """What `bulkhead status -o json` prints."""
    return dict(json.loads(await bulkhead("status", "-o", "json", "--run-dir", str(world.home.run_dir))))


async def bulkhead(*words: str) -> str:
    """The output of the command."""
    done = await asyncio.to_thread(
        subprocess.run,
        [str(BIN / "bulkhead"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * WAIT_SECONDS,
    )
    return done.stdout


async def test_the_progress_of_a_slow_pull_is_shown_until_it_ends_and_after_a_kill(tmp_path: Path) -> None:
    async with World() as world:
        with Registry(tmp_path / "registry") as registry:
            async with Throttled(registry.address) as slow:
                registry.push("slow/app:1", padding=8 * MEBIBYTE)
                image = slow.name("slow/app:1")
                pod = busybox_pod("slow")
                pod["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": "IfNotPresent"}
                world.put_manifest("slow", pod)
                slow.allow(3 * MEBIBYTE)

                async def stalled() -> str | None:
                    if not slow.is_used_up:
                        return None  # a busy machine may stall it before
                    found = await waits_for(world, "slow")
                    return found if "MiB of" in found and "no bytes for" in found else None

                text = await world.wait_for(stalled, "the stalled pull to be shown", WAIT)
                assert text.startswith(f"pulling image {image}: "), text
                arrived, _, total = text.removeprefix(f"pulling image {image}: ").partition(" MiB of ")
                assert 1.0 < float(arrived) <= 3.0, text  # what the head of answers takes is not counted
                assert 8.0 < float(total.partition(" MiB")[0]) < 12.0, text
                assert ", 1 layer, " in text

                async def in_story() -> bool:
                    return f"pulling image {image}: " in await bulkhead("explain", "slow", *root(world))

                await world.wait_for(in_story, "the progress in the pod's story", WAIT)

                pid = world.kill("podsync")
                await world.wait_back("podsync", pid)
                slow.allow(3 * MEBIBYTE)
                await world.wait_for(stalled, "the pull to be shown by the next podsync", WAIT)

                slow.allow(math.inf)
                await world.wait_running("slow", WAIT)

                async def is_over() -> bool:
                    return await waits_for(world, "slow") == ""

                await world.wait_for(is_over, "no pull to be shown", WAIT)

                async def tells_the_end() -> bool:  # the story is written a moment later
                    return f"image {image} is pulled, after " in await bulkhead("explain", "slow", *root(world))

                await world.wait_for(tells_the_end, "the end of the pull in the pod's story", WAIT)


def root(world: World) -> list[str]:
    """The option that names the agent's root directory."""
    return ["--root-dir", str(world.home.path / "kubelet")]
