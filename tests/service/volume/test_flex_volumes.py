"""A volume of a FlexVolume driver through kills of volume before and after each call of the driver."""

import asyncio
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.volume.adapters import flex_drivers
from tests.service.volume.node import Node, started_node
from tests.support.waits.deadline import WAIT_SECONDS

DRIVER = Path(__file__).parents[2] / "programs" / "flex_driver.py"
FLEX_COMMANDS = ("init", "mount", "unmount")
POINTS = [f"volume.flex.{step}.{command}" for step in ("calling", "answered") for command in FLEX_COMMANDS]


class KilledError(BaseException):
    """In place of SIGKILL: no handler of Exception runs."""


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
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


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_a_call_leaves_what_an_undisturbed_run_leaves(
    node: Node, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    install(node)
    node.admitted.mark_complete()
    reached, loop = asyncio.Event(), asyncio.get_running_loop()

    def end_there(name: str) -> None:
        if name == point:
            loop.call_soon_threadsafe(reached.set)
            raise KilledError

    was_mounting = not point.endswith("unmount")
    node.admit("u", "flex")
    with monkeypatch.context() as killed:
        killed.setattr(flex_drivers, "crash_point", end_there)
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


async def test_an_event_names_a_driver_that_is_missing_until_it_is_installed(node: Node) -> None:
    where = node.volume_plugin_dir / "acme~disk" / "disk"
    text = f"there is no FlexVolume driver acme/disk: install it as {where} (volumePluginDir)"
    node.admit("u", "flex")
    async with node.volume():
        (event, *_) = (await node.events.until(bool)).values()
        assert (event.reason, event.message) == ("FailedMount", f'MountVolume.SetUp failed for volume "flex" : {text}')
        install(node)
        await until_mounted(node)
