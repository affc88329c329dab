"""Makes the calls of the device plugin API v1beta1, and converts their messages (interfaces.md)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bus.messages.device_plugins import Device
from services.volume.core.device_plugins.device_resources import PluginOptions
from services.volume.core.device_plugins.plugin_checks import UnusableDevicesError, checked_devices
from shared.plugin_grpc.async_connection import AsyncPluginConnection, NewestMessage, connected_async
from shared.plugin_grpc.connection import decoded
from shared.plugin_grpc.device_plugin_pb2 import DevicePluginOptions, Empty, ListAndWatchResponse, RegisterRequest
from shared.plugin_grpc.serving import CallRefusedError, Method, SocketServer

MAX_CONNECT_SECONDS = 10.0  # with the answer to GetDevicePluginOptions
_SERVICE = "/v1beta1.DevicePlugin"
_LIST_AND_WATCH = f"{_SERVICE}/ListAndWatch"

# Receives version, name of the resource and endpoint of a registration; raises UnusableDevicesError.
Register = Callable[[str, str, str], Awaitable[None]]


class DevicePlugin:
    """A connection to one device plugin; made by `connected_plugin`. Each method raises PluginCallError."""

    def __init__(self, connection: AsyncPluginConnection) -> None:
        self._connection = connection

    async def options(self) -> PluginOptions:
        """Return which further calls the plugin requires and permits."""
        method = f"{_SERVICE}/GetDevicePluginOptions"
        found = await self._connection.call(method, Empty(), DevicePluginOptions, MAX_CONNECT_SECONDS)
        return PluginOptions(found.pre_start_required, found.get_preferred_allocation_available)

    def lists(self) -> NewestMessage:
        """Begin to follow the plugin's lists of devices."""
        return self._connection.follow(_LIST_AND_WATCH, Empty())


@asynccontextmanager
async def connected_plugin(endpoint: str) -> AsyncIterator[DevicePlugin]:
    """A connection to the plugin at the absolute path of its socket."""
    async with connected_async(endpoint) as connection:
        yield DevicePlugin(connection)


def decode_devices(message: bytes) -> tuple[tuple[Device, ...], int]:
    """Return the devices of a message of ListAndWatch, and how many it lists with those that it lists twice. Raises
    PluginCallError and UnusableDevicesError."""
    found = decoded(message, ListAndWatchResponse, _LIST_AND_WATCH).devices
    listed = ((device.ID, device.health, [node.ID for node in device.topology.nodes]) for device in found)
    return checked_devices(listed, len(found)), len(found)


def registration_server(path: Path, register: Register) -> SocketServer:
    """Return the server of `v1beta1.Registration`."""

    async def handle(request: RegisterRequest) -> Empty:
        try:
            await register(request.version, request.resource_name, request.endpoint)
        except UnusableDevicesError as error:
            raise CallRefusedError("Unknown", str(error)) from None
        return Empty()

    return SocketServer(path, {"v1beta1.Registration": {"Register": Method(RegisterRequest, handle)}})
