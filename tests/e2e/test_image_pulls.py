"""Real pulls: a registry on loopback, a pod whose image only it has, and what is told when it is away or lacks it."""

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent import free_ports
from tests.world import World, busybox_pod
from tools.oci_image import BUSYBOX_IMAGE

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]

CONFIG = """version: 0.1
storage: {{filesystem: {{rootdirectory: {directory}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@contextmanager
def registry(directory: Path, port: int) -> Iterator[None]:
    """Debian's docker-registry on a loopback port."""
    directory.mkdir(exist_ok=True)
    config = directory / "config.yml"
    config.write_text(CONFIG.format(directory=directory / "data", port=port))
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 15
        while not _answers(port):
            assert process.poll() is None and time.monotonic() < deadline, (directory / "log").read_text()
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def push(world: World, image: str) -> None:
    """Put the busybox image into the registry under this name, and out of containerd again."""
    ctr = ["ctr", "--address", world.containerd_socket, "--namespace", "k8s.io", "images"]
    subprocess.run([*ctr, "tag", BUSYBOX_IMAGE, image], check=True, capture_output=True)
    subprocess.run([*ctr, "push", "--plain-http", image], check=True, capture_output=True)
    subprocess.run([*ctr, "remove", "--sync", image], check=True, capture_output=True)


def pod_of(name: str, image: str, policy: str = "IfNotPresent") -> dict[str, Any]:
    pod = busybox_pod(name)
    pod["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": policy}
    return pod


async def waiting_reason(world: World, name: str) -> str:
    pod = await world.pod(name)
    statuses = (pod or {}).get("status", {}).get("containerStatuses") or [{}]
    return str(statuses[0].get("state", {}).get("waiting", {}).get("reason", ""))


async def test_an_image_is_pulled_from_a_real_registry_and_a_registry_that_is_away_is_waited_for(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    image = f"127.0.0.1:{port}/test/busybox:7"
    async with World() as world:
        with registry(tmp_path / "registry", port):
            push(world, image)
            world.put_manifest("pulled", pod_of("pulled", image))
            await world.wait_running("pulled", 30)
            pulled = [line for line in world.log_of("status").splitlines() if "reason=Pulled" in line]
            assert any(f'Successfully pulled image "{image}" in' in line for line in pulled), pulled

            world.put_manifest("absent", pod_of("absent", f"127.0.0.1:{port}/test/absent:1"))

            async def told() -> bool:
                return await waiting_reason(world, "absent") in ("ErrImagePull", "ImagePullBackOff")

            await world.wait_for(told, "the missing image to be told")

            world.put_manifest("always", pod_of("always", image, "Always"))
            await world.wait_running("always", 30)

        world.put_manifest("away", pod_of("away", f"127.0.0.1:{port}/test/other:1"))

        async def backing_off() -> bool:
            return await waiting_reason(world, "away") == "ImagePullBackOff"

        await world.wait_for(backing_off, "the absent registry to be told")
        never = pod_of("never", "127.0.0.1:1/test/never:1", "Never")
        world.put_manifest("never", never)

        async def refused() -> bool:
            return await waiting_reason(world, "never") == "ErrImageNeverPull"

        await world.wait_for(refused, "ErrImageNeverPull")
