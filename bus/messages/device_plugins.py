"""Messages about device plugins, of which volume is the owner."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device of a resource, as its plugin lists it."""

    id: str  # the plugin's name of it, unique within the resource
    healthy: bool  # as the plugin reports it; false of every device while the plugin is not connected
    nodes: tuple[int, ...] = ()  # ids of the NUMA nodes that it is near to, ascending; empty = the plugin names none


@dataclass(frozen=True, kw_only=True)
class DeviceResource:
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
