"""Device plugins of one node with volume at work, and what volume publishes of their resources."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bus.messages.device_plugins import DeviceResource
from services.volume.controllers import device_plugin_lists
from shared.time.backoff import Backoff
from tests.programs.device_plugin import DevicePlugin, Devices, devices_of
from tests.service.volume.node import Node, started_node
from tests.support.waits.deadline import WAIT_SECONDS

GPU, NIC = "example.com/gpu", "example.com/nic"


class Plugins:
    """Has the device plugins of one node, and what volume publishes of their resources."""

    def __init__(self, node: Node) -> None:
        self.node, self.resources = node, node.resources
        self.directory = node.root / "device-plugins"
        self.socket = self.directory / "kubelet.sock"
        self._plugins: list[DevicePlugin] = []

    def plugin(self, resource: str = GPU, devices: Devices | None = None, **details: Any) -> DevicePlugin:
        """Make a plugin that does not serve yet."""
        socket = details.pop("socket", f"{resource.rpartition('/')[2]}.sock")
        plugin = DevicePlugin(self.directory, resource, devices or devices_of("a", "b"), socket=socket, **details)
        self._plugins.append(plugin)
        return plugin

    async def register(self, plugin: DevicePlugin, **details: Any) -> str:
        """Let the plugin serve once the agent listens, as real ones do, and register it; return the text of the
        refusal, "" for none."""
        await self.until_listening()
        plugin.start()
        try:
            await asyncio.to_thread(plugin.register, **details)
        except grpc.RpcError as error:
            return str(error.details())
        return ""

    async def until_registered(self, plugin: DevicePlugin) -> None:
        """Register the plugin once the agent listens again. As long as the socket of the process before is there, the
        plugin cannot register. Until it has registered, the agent may remove the plugin's socket: then it serves
        anew."""
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.register(plugin) or not plugin.socket.exists():
                plugin.break_off()
                await asyncio.sleep(0.01)

    async def connect_below_registry(self, plugin: DevicePlugin) -> Path:
        """Serve the plugin, register it below `plugins_registry`, wait until volume is connected, and return the socket
        of the registration."""
        registry = self.node.root / "plugins_registry"
        await self.until_listening()
        plugin.start()
        plugin.register_below(registry)
        await self.until(lambda gpu: gpu.connected)
        return registry / plugin.socket.name

    async def until_listening(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.socket.is_socket():
                await asyncio.sleep(0.01)

    async def until(self, fits: Callable[[DeviceResource], bool], resource: str = GPU) -> DeviceResource:
        """Wait until the resource is published as `fits` requires, and return it."""
        state = await self.resources.until(lambda state: resource in state and fits(state[resource]))
        return state[resource]

    def stop(self) -> None:
        for plugin in self._plugins:
            plugin.stop()


@asynccontextmanager
async def running_plugins(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plugins]:
    """Yield a node that plugins can register at, in a directory with a short path: that of a socket has at most 107
    bytes."""
    monkeypatch.setattr(device_plugin_lists, "MIN_LIST_SECONDS", 0.05)
    monkeypatch.setattr(device_plugin_lists, "RETRIES", Backoff(initial=0.1, cap=0.5))
    with tempfile.TemporaryDirectory(prefix="dp") as directory:
        node = await started_node(Path(directory), monkeypatch, device_plugins=True)
        for name in ("device-plugins", "plugins_registry"):
            (node.root / name).mkdir(parents=True)
        found = Plugins(node)
        try:
            yield found
        finally:
            found.stop()


def healthy(resource: DeviceResource) -> list[str]:
    """Return the ids of the devices that the plugin lists as healthy."""
    return [device.id for device in resource.devices if device.healthy]
