"""A volume of a FlexVolume driver through kills of volume before and after each call of the driver."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.volume.adapters import flex_drivers
from services.volume.controllers import flex_capabilities
from tests.service.volume.attach_stage import Stage
from tests.service.volume.node import Node, started_node
from tests.support.waits.deadline import WAIT_SECONDS

DRIVER = Path(__file__).parents[2] / "programs" / "flex_driver.py"
COMMANDS = ("init", "mount", "unmount")
DEVICE_COMMANDS = ("waitforattach", "mountdevice", "mount", "unmount", "unmountdevice")  # of a driver that attaches
STEPS = ("calling", "answered")
UNIQUE_NAME = "acme/disk/flex"


class KilledError(BaseException):
    """In place of SIGKILL: no handler of Exception runs."""


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    # The driver is run by this Python: the first on PATH may be a script that looks for one.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    node = await started_node(tmp_path, monkeypatch)
    node.volumes.append({"name": "flex", "flexVolume": {"driver": "acme/disk"}})
    (node.volume_plugin_dir / "acme~disk").mkdir(parents=True)
    return node


def install(node: Node) -> None:
    (node.volume_plugin_dir / "acme~disk" / "disk").symlink_to(DRIVER)


def mounted(node: Node) -> Path:
    return node.directory("u") / "volumes" / "acme~disk" / "flex" / "mounted"


async def until_mounted(node: Node) -> None:
    await node.mounted.until(lambda state: "u" in state and state["u"].volumes["flex"].state is VolumeState.MOUNTED)


@pytest.fixture
async def stage(node: Node) -> Stage:
    """The driver attaches volumes."""
    install(node)
    (node.volume_plugin_dir / "acme~disk" / "attach").touch()
    node.kubeconfig = "kubeconfig"
    node.admitted.mark_complete()
    stage = Stage(node)
    await stage.start()
    return stage


def device(node: Node) -> Path:
    return node.root / "plugins" / "kubernetes.io" / "flexvolume" / "acme" / "disk" / "mounts" / "flex"


@contextlib.contextmanager
def ending_at(monkeypatch: pytest.MonkeyPatch, point: str) -> Iterator[asyncio.Event]:
    """The call ends there as if the process had been killed; then the event is set."""
    reached, loop = asyncio.Event(), asyncio.get_running_loop()

    def end_there(name: str) -> None:
        if name == point:
            loop.call_soon_threadsafe(reached.set)
            raise KilledError

    with monkeypatch.context() as killed:
        killed.setattr(flex_drivers, "crash_point", end_there)
        yield reached


@pytest.mark.share(3)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_a_call_leaves_what_an_undisturbed_run_leaves(
    node: Node, monkeypatch: pytest.MonkeyPatch, step: str, command: str
) -> None:
    install(node)
    node.admitted.mark_complete()
    await mount_and_unmount(node, monkeypatch, step, command)


@pytest.mark.share(4)
@pytest.mark.parametrize("command", DEVICE_COMMANDS)
@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_a_call_for_a_device_leaves_what_an_undisturbed_run_leaves(
    node: Node, stage: Stage, monkeypatch: pytest.MonkeyPatch, step: str, command: str
) -> None:
    async with stage.controller("/dev/x"):
        await mount_and_unmount(node, monkeypatch, step, command)
    assert not device(node).exists()


async def mount_and_unmount(node: Node, monkeypatch: pytest.MonkeyPatch, step: str, command: str) -> None:
    was_mounting = not command.startswith("unmount")
    node.admit("u", "flex")
    with ending_at(monkeypatch, f"volume.flex.{step}.{command}") as reached:
        async with node.volume():
            if not was_mounting:
                await until_mounted(node)
                node.admit("u", state=PodState.FINISHED)
            await asyncio.wait_for(reached.wait(), WAIT_SECONDS)
    async with node.volume():
        if was_mounting:
            await until_mounted(node)
            assert mounted(node).is_file()
            node.admit("u", state=PodState.FINISHED)
        await node.until_gone("u")
        async with asyncio.timeout(WAIT_SECONDS):
            while device(node).exists():
                await asyncio.sleep(0)


@pytest.mark.long
async def test_a_volume_of_a_driver_that_attaches_is_mounted_once_the_node_names_it_as_attached(
    node: Node, stage: Stage
) -> None:
    node.admit("u", "flex")
    async with node.volume():
        generation = await stage.until_in_use(UNIQUE_NAME)
        stage.attached("2", UNIQUE_NAME, device="/dev/x")
        node.admit("b", "cache")
        await node.mounted.until(lambda state: "b" in state)
        assert not device(node).exists()
        stage.report(generation, "2", UNIQUE_NAME)
        await until_mounted(node)
        assert (device(node) / "device").read_text().startswith("/dev/x-1 ")
        node.admit("v", "flex")  # both have the device
        await node.mounted.until(lambda state: "v" in state and state["v"].volumes["flex"].host_path != "")
        node.admit("u", state=PodState.FINISHED)
        await node.until_gone("u")
        assert device(node).exists()
        node.admit("v", state=PodState.FINISHED)
        await stage.until_in_use()
        assert not device(node).exists()


async def test_a_driver_that_is_replaced_by_one_that_attaches_is_asked_again(
    node: Node, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flex_capabilities, "LOOK_SECONDS", 0.05)
    here = node.volume_plugin_dir / "acme~disk"
    (here / "attach").unlink()
    node.admit("u", "flex")
    async with node.volume(), stage.controller("/dev/x"):
        await until_mounted(node)
        (here / "attach").touch()
        (here / "disk").unlink()
        shutil.copy(DRIVER, here / "disk")
        node.admit("v", "flex")
        await stage.until_in_use(UNIQUE_NAME)
        await node.mounted.until(lambda state: "v" in state and state["v"].volumes["flex"].host_path != "")
        assert (device(node) / "device").is_file()
        node.admit("u", state=PodState.FINISHED)
        await node.until_gone("u")
        assert (device(node) / "device").is_file()


async def test_an_event_names_a_driver_that_is_missing_until_it_is_installed(node: Node) -> None:
    where = node.volume_plugin_dir / "acme~disk" / "disk"
    text = f"there is no FlexVolume driver acme/disk: install it as {where} (volumePluginDir)"
    node.admit("u", "flex")
    async with node.volume():
        (event, *_) = (await node.events.until(bool)).values()
        assert (event.reason, event.message) == ("FailedMount", f'MountVolume.SetUp failed for volume "flex" : {text}')
        install(node)
        await until_mounted(node)
