"""Makes the calls of the device plugin API v1beta1, and converts their messages (interfaces.md)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bus.messages.device_plugins import AllocatedDevices, Device, DeviceMount, DeviceNode
from services.volume.core.device_plugins.device_resources import PluginOptions
from services.volume.core.device_plugins.plugin_checks import UnusableDevicesError, check_list_size, checked_devices
from shared.plugin_grpc.async_connection import AsyncPluginConnection, NewestMessage, connected_async
from shared.plugin_grpc.connection import decoded
from shared.plugin_grpc.device_plugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerPreferredAllocationRequest,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
    RegisterRequest,
)
from shared.plugin_grpc.serving import CallRefusedError, Method, SocketServer

MAX_CONNECT_SECONDS = 10.0  # with the answer to GetDevicePluginOptions
MAX_PREFER_SECONDS = 5.0  # each of these with the connection
MAX_ALLOCATE_SECONDS = 30.0
MAX_PRE_START_SECONDS = 30.0
MAX_ALLOCATION_BYTES = 64 * 1024  # of what one container needs for the devices of one resource
_SERVICE = "/v1beta1.DevicePlugin"
_LIST_AND_WATCH = f"{_SERVICE}/ListAndWatch"

# Receives version, name of the resource and endpoint of a registration; raises UnusableDevicesError.
Register = Callable[[str, str, str], Awaitable[None]]


class DevicePlugin:
    """Is a connection to one device plugin, made by `connected_plugin`. Each method raises PluginCallError."""

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

    async def preferred(self, available: tuple[str, ...], must_include: tuple[str, ...], size: int) -> tuple[str, ...]:
        """Return those of `available` that the plugin prefers where `size` devices are needed."""
        wanted = ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        request = PreferredAllocationRequest(container_requests=[wanted])
        method = f"{_SERVICE}/GetPreferredAllocation"
        answer = await self._connection.call(method, request, PreferredAllocationResponse, MAX_PREFER_SECONDS)
        found = {name for each in answer.container_responses[:1] for name in each.deviceIDs}
        return tuple(sorted(found.intersection(available)))

    async def allocate(self, devices: tuple[str, ...]) -> AllocatedDevices:
        """Return what the container of these devices needs. Raises UnusableDevicesError, too."""
        request = AllocateRequest(container_requests=[ContainerAllocateRequest(devices_ids=devices)])
        answer = await self._connection.call(f"{_SERVICE}/Allocate", request, AllocateResponse, MAX_ALLOCATE_SECONDS)
        if len(answer.container_responses) != 1:
            count = len(answer.container_responses)
            raise UnusableDevicesError(f"the allocation response has {count} containers instead of one")
        found = answer.container_responses[0]
        if found.ByteSize() > MAX_ALLOCATION_BYTES:
            raise UnusableDevicesError(f"the allocation response is longer than {MAX_ALLOCATION_BYTES} bytes")
        return AllocatedDevices(
            envs=dict(found.envs),
            mounts=tuple(
                DeviceMount(container_path=each.container_path, host_path=each.host_path, read_only=each.read_only)
                for each in found.mounts
            ),
            devices=tuple(
                DeviceNode(container_path=each.container_path, host_path=each.host_path, permissions=each.permissions)
                for each in found.devices
            ),
            annotations=dict(found.annotations),
            cdi_devices=tuple(each.name for each in found.cdi_devices),
        )

    async def pre_start(self, devices: tuple[str, ...]) -> None:
        """Let the plugin prepare these devices for a start of their container."""
        request = PreStartContainerRequest(devices_ids=devices)
        method = f"{_SERVICE}/PreStartContainer"
        await self._connection.call(method, request, PreStartContainerResponse, MAX_PRE_START_SECONDS)


@asynccontextmanager
async def connected_plugin(endpoint: str) -> AsyncIterator[DevicePlugin]:
    """Yield a connection to the plugin at the absolute path of its socket, which the first call opens."""
    async with connected_async(endpoint) as connection:
        yield DevicePlugin(connection)


def decode_devices(message: bytes) -> tuple[tuple[Device, ...], int]:
    """Return the devices of a message of ListAndWatch, and how many it lists with those that it lists twice. Raises
    PluginCallError and UnusableDevicesError."""
    found = decoded(message, ListAndWatchResponse, _LIST_AND_WATCH).devices
    check_list_size(len(found), (len(device.topology.nodes) for device in found))
    listed = ((device.ID, device.health, [node.ID for node in device.topology.nodes]) for device in found)
    return checked_devices(listed), len(found)


def registration_server(path: Path, register: Register) -> SocketServer:
    """Return the server of `v1beta1.Registration`."""

    async def handle(request: RegisterRequest) -> Empty:
        try:
            await register(request.version, request.resource_name, request.endpoint)
        except UnusableDevicesError as error:
            raise CallRefusedError("Unknown", str(error)) from None
        return Empty()

    return SocketServer(path, {"v1beta1.Registration": {"Register": Method(RegisterRequest, handle)}})
