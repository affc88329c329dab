"""Has the messages about device plugins, of which volume is the owner."""

from dataclasses import dataclass, field

import msgspec

MAX_RESOURCES = 64  # that have device plugins; a node has a handful
MAX_DEVICES = 10_000  # of one resource


@dataclass(frozen=True, kw_only=True)
class Device:
    """Has one device of a resource, as its plugin lists it."""

    id: str  # the plugin's name of it, unique within the resource
    healthy: bool  # as the plugin reports it; false of every device while the plugin is not connected
    nodes: tuple[int, ...] = ()  # ids of the NUMA nodes that it is near to, ascending; empty = the plugin names none
    # seconds since the epoch: since when it is healthy, or is not, as this process has seen it; nothing depends on it
    since: float = field(default=0.0, compare=False)


class DeviceResource(msgspec.Struct, frozen=True, kw_only=True):
    """Stream `devices.resources`, key: name of the resource, such as `nvidia.com/gpu`. An item for each resource of
    which a device plugin has registered, also in an earlier process."""

    resource: str  # its name
    connected: bool  # its plugin is connected and has listed its devices
    since: float  # seconds since the epoch: since when the plugin is connected, or is not, as this process has seen it
    dropped: bool = False  # the plugin has not been connected for 5 minutes: the Node has none of these devices
    pre_start_required: bool = False  # PreStartContainer must be called before each start of a container
    preferred_allocation: bool = False  # GetPreferredAllocation may be called
    # by id; the newest list of the plugin, and after its connection has ended the last one; empty before the first
    # list of this process, and once the resource is dropped
    devices: tuple[Device, ...] = ()
    error: str = ""  # one line: why the plugin is not connected


class GetPreferredAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """Request to volume: which devices of a resource does its plugin prefer? Only where the resource has
    `preferred_allocation`. Answered with PreferredAllocation."""

    resource: str  # its name
    available: tuple[str, ...]  # ids of the devices among which the plugin chooses
    must_include: tuple[str, ...]  # ids that are chosen already
    size: int  # how many devices are needed, with those that are chosen already


class PreferredAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to GetPreferredAllocation."""

    devices: tuple[str, ...] = ()  # those of `available` that it prefers, perhaps not `size` of them; empty = none
    error: str = ""  # one line: why the plugin could not be asked


class AllocateDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Request to volume: have the plugin prepare these devices for one container. Answered with AllocatedDevices."""

    resource: str  # its name
    devices: tuple[str, ...]  # ids of the devices of one container


class DeviceMount(msgspec.Struct, frozen=True, kw_only=True):
    """Has a mount that the container of a device needs."""

    container_path: str  # where the container sees it
    host_path: str  # what is mounted
    read_only: bool = False  # the container may not write there


class DeviceNode(msgspec.Struct, frozen=True, kw_only=True):
    """Has a device file that the container of a device needs."""

    container_path: str  # where the container sees it
    host_path: str  # the device file of the machine
    permissions: str = ""  # of cgroups: `r` read, `w` write, `m` mknod


class AllocatedDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Answers AllocateDevices with what the container needs for its devices, which is at most 64 KiB."""

    envs: dict[str, str] = msgspec.field(default_factory=dict)  # environment variables
    mounts: tuple[DeviceMount, ...] = ()  # in the order of the plugin
    devices: tuple[DeviceNode, ...] = ()  # in the order of the plugin
    annotations: dict[str, str] = msgspec.field(default_factory=dict)  # for the runtime
    cdi_devices: tuple[str, ...] = ()  # names of CDI devices, such as `nvidia.com/gpu=0`
    error: str = ""  # one line: why the devices could not be allocated
    # With an error: the plugin could not be reached or has not answered in time, and may be asked again.
    unanswered: bool = False


class PreStartContainer(msgspec.Struct, frozen=True, kw_only=True):
    """Request to volume: a container with these devices is about to start. Only where the resource has
    `pre_start_required`. Answered with PreStartedContainer."""

    resource: str  # its name
    devices: tuple[str, ...]  # ids of the devices of the container


class PreStartedContainer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to PreStartContainer."""

    error: str = ""  # one line: why the container must not start
