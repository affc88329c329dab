"""A device plugin as a process of its own, beside volume: killed, killed in a call, and found again (node.md 4.15)."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager

import pytest

from bus.messages.device_plugins import AllocatedDevices, AllocateDevices
from tests.programs.device_plugin import DevicePlugin, devices_of
from tests.programs.running import running_program
from tests.service.volume.device_plugins import GPU, Plugins, running_plugins
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def plugins(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plugins]:
    async with running_plugins(monkeypatch) as found:
        yield found


def plugin_process(plugins: Plugins) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Run a plugin that registers whenever the socket of the agent is replaced, and serves there."""
    return running_program("device_plugin", str(plugins.directory), GPU, "--ids", "a,b")


async def test_a_killed_plugin_is_noticed_and_its_successor_is_used(plugins: Plugins) -> None:
    async with plugins.node.volume():
        await plugins.until_listening()
        with plugin_process(plugins) as process:
            await plugins.until(lambda gpu: gpu.connected)
            process.send_signal(signal.SIGKILL)
            gone = await plugins.until(lambda gpu: not gpu.connected)
            assert [device.healthy for device in gone.devices] == [False, False]
        with plugin_process(plugins):
            back = await plugins.until(lambda gpu: gpu.connected)
            assert [device.healthy for device in back.devices] == [True, True]


async def test_a_plugin_is_used_again_after_each_restart_of_volume(plugins: Plugins) -> None:
    with plugin_process(plugins):
        for _ in range(3):
            plugins.resources.changes.clear()
            async with plugins.node.volume():
                async with asyncio.timeout(WAIT_SECONDS):
                    while not any(getattr(change, "key", "") == GPU for change in plugins.resources.changes):
                        await asyncio.sleep(0.01)
                await plugins.until(lambda gpu: gpu.connected)


async def test_a_plugin_that_dies_in_allocate_costs_one_line_and_serves_once_it_runs_again(plugins: Plugins) -> None:
    request = AllocateDevices(resource=GPU, devices=("a",))
    async with plugins.node.volume():
        await plugins.until_listening()
        plugin = DevicePlugin(plugins.directory, GPU, devices_of("a", "b"))  # its files; the process serves
        plugin.fault("Allocate", "die")
        with plugin_process(plugins):
            await plugins.until(lambda gpu: gpu.connected)
            answer = await plugins.node.podsync.ask("volume", request, AllocatedDevices, timeout=WAIT_SECONDS)
            assert "rpc error: code = Unavailable" in answer.error and "\n" not in answer.error
            await plugins.until(lambda gpu: not gpu.connected)
        plugin.fault("Allocate")
        with plugin_process(plugins):
            await plugins.until(lambda gpu: gpu.connected)
            answer = await plugins.node.podsync.ask("volume", request, AllocatedDevices, timeout=WAIT_SECONDS)
            assert (answer.error, answer.envs) == ("", {"GPU_IDS": "a"})
