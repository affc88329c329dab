"""A full disk under the checkpoint: pods still end, and a restart in the middle of it forgets nothing.
A full disk under the logs: nothing dies of it, supervisord least of all.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.agents.world import World, busybox_pod
from tests.support.waits.looks import LEAST_SECONDS
from tools import leftovers

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@contextmanager
def small_disk(image: Path, mountpoint: Path) -> Iterator[None]:
    """An ext4 of 8 MiB on a loop device."""
    mountpoint.mkdir(parents=True, exist_ok=True)
    image.write_bytes(b"\0" * (8 << 20))
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mountpoint)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", str(mountpoint.parent)], check=False, capture_output=True)
        subprocess.run(["umount", "--lazy", str(mountpoint)], check=False, capture_output=True)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    """An agent whose checkpoints lie on a small disk of their own."""
    async with World(start=False) as world:
        with small_disk(world.home.path / "disk.img", world.home.path / "kubelet" / "bulkhead"):
            await world.start()
            yield world


def fill(directory: Path) -> None:
    """Write until no block is free. What earlier calls wrote stays."""
    for size in (1 << 20, 1 << 12, 1):
        with (directory / f"ballast-{size}").open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"\0" * size)
            except OSError:
                continue


@asynccontextmanager
async def filled(directory: Path) -> AsyncIterator[None]:
    """Keep the disk full during the block, also where a service that replaces a file frees its old blocks."""
    await asyncio.to_thread(fill, directory)
    ended = asyncio.Event()

    async def fill_again() -> None:
        while not ended.is_set():
            await asyncio.to_thread(fill, directory)
            await asyncio.sleep(LEAST_SECONDS)

    filling = asyncio.create_task(fill_again())
    try:
        yield
    finally:
        ended.set()
        await filling
        for ballast in directory.glob("ballast-*"):
            ballast.unlink()


async def test_pods_end_on_a_full_disk_and_start_again_when_there_is_room(world: World) -> None:
    names = ("one", "two", "three")
    for name in names:
        world.put_manifest(name, busybox_pod(name))
    await asyncio.gather(*(world.wait_running(name) for name in names))
    disk = world.home.path / "kubelet" / "bulkhead"
    async with filled(disk):
        world.remove_manifest("one")
        await world.wait_gone("one")
        await world.wait_for(lambda: "cannot be written" in world.log_of("podsync"), "the log to name the full disk")
        await world.wait_for(
            lambda: any("checkpoint" in t for t in world.beats["podsync"].troubles), "a trouble in the beat"
        )

        pid = world.kill("podsync")  # what could not be saved on the disk is known all the same
        await world.wait_back("podsync", pid)
        world.remove_manifest("two")
        await world.wait_gone("two")
        three = await world.runtime_pod("three")
        assert three is not None and [c.attempt for c in three.containers] == [0]

    world.put_manifest("four", busybox_pod("four"))
    await world.wait_running("four")
    await world.wait_for(lambda: not world.beats["podsync"].troubles, "the trouble to end")


@pytest_asyncio.fixture
async def world_with_small_logs() -> AsyncIterator[World]:
    """An agent whose logs, supervisord's and the console among them, lie on a small disk of their own."""
    async with World(start=False) as world:
        with small_disk(world.home.path / "disk.img", world.home.log_dir):
            await world.start()
            yield world


async def test_supervisord_outlives_a_full_log_disk_and_brings_services_back(world_with_small_logs: World) -> None:
    world = world_with_small_logs
    supervisord = world.supervisord_pid
    await asyncio.to_thread(fill, world.home.log_dir)
    log = world.home.log_dir / "supervisord.log"
    for _ in range(3):  # one death and start are several lines: more than the room left in the log's last block
        with log.open("ab", buffering=0) as file, suppress(OSError):
            while file.write(b"\n" * 512):
                pass
        world.reset_start_counts()
        pid = world.kill("podsync")
        await world.wait_back("podsync", pid)
    assert (world.supervisord_pid, leftovers.alive(supervisord)) == (supervisord, True)
    assert "RUNNING" in world.supervisorctl("status")
