"""The same agent on containerd 1.7, which tells of containers by GetContainerEvents: one reader, each event a hint."""

import os
import signal
import subprocess
import time

import pytest

from shared.model.runtime import ContainerState
from tests.lacking import lack
from tests.world import World, busybox_pod
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def path() -> str:
    """PATH with the newer containerd and its shim first, fetched if need be."""
    done = subprocess.run([CHECKOUT / "tools/newer-containerd"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lack(done.stderr.strip().splitlines()[-1])
    return f"{done.stdout.strip()}:{os.environ['PATH']}"


async def test_a_pod_runs_restarts_and_ends_on_a_containerd_with_an_event_stream(path: str) -> None:
    async with World(environment={"PATH": path}) as world:
        world.put_manifest("modern", busybox_pod("modern"))
        pod = await world.wait_running("modern")
        await world.wait_for(lambda: "relying on pidfds" not in world.log_of("pleg"), "an event stream", 1)
        os.kill(pod.containers[0].pid, signal.SIGKILL)
        began = time.monotonic()

        async def again() -> bool:
            seen = await world.runtime_pod("modern")
            return seen is not None and (seen.containers[0].attempt, seen.containers[0].state) == (
                1,
                ContainerState.RUNNING,
            )

        await world.wait_for(again, "attempt 1 to run", 5)
        print(f"restarted after {time.monotonic() - began:.3f} s")
        pid = world.kill("containerd")
        await world.wait_for(lambda: world.pid_of("containerd") not in (0, pid), "containerd to come back", 5)
        world.put_manifest("next", busybox_pod("next"))
        await world.wait_running("next")
        for name in ("modern", "next"):
            world.remove_manifest(name)
            await world.wait_gone(name)
