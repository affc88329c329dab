"""Decides whether what a device plugin sends is accepted: its registration, with the kubelet's texts, and its list of
devices (node.md 4.15).
"""

import json
from collections.abc import Iterable

from bus.messages.device_plugins import MAX_DEVICES, Device
from shared.podspec.names import qualified_name
from shared.podspec.resources import is_extended

VERSION = "v1beta1"
HEALTHY = "Healthy"
MAX_ID_CHARACTERS = 256  # of a device
MAX_NUMA_NODE = 1023  # a larger id is of no NUMA node
MAX_NUMA_NODES = 100_000  # of all devices of one resource together, on average ten for each of MAX_DEVICES
MAX_PATH_BYTES = 107  # of a Unix socket's path

Listed = tuple[str, str, Iterable[int]]  # id, health and NUMA nodes of a device, as a plugin sends them


class UnusableDevicesError(Exception):
    """Says why what a device plugin sent cannot be used; `str()` is one line, for the plugin and the log."""


def check_version(version: str) -> None:
    """Raise UnusableDevicesError if the registration is of another version of the interface."""
    if version != VERSION:
        supported = f"Supported version is {json.dumps([VERSION])}"
        raise UnusableDevicesError(f"requested API version {_quoted(version)} is not supported by kubelet. {supported}")


def check_resource(resource: str) -> None:
    """Raise UnusableDevicesError if the name is none of an extended resource, such as a reserved one."""
    quota = f"requests.{resource}"  # the name of the resource in a ResourceQuota must be valid, too
    if not is_extended(resource) or resource.startswith("requests.") or qualified_name(quota):
        raise UnusableDevicesError(f"the ResourceName {_quoted(resource)} is invalid")


def socket_below(directory: str, endpoint: str) -> str:
    """Return the path of the socket that a registration names. Raises UnusableDevicesError where it is not below the
    directory, or where no socket can have this path."""
    if any(part in ("", ".", "..") for part in endpoint.split("/")) or not endpoint.isprintable():
        raise UnusableDevicesError(f"the endpoint {_quoted(endpoint)} is no name of a socket below {directory}")
    path = f"{directory}/{endpoint}"
    check_socket(path)
    return path


def check_socket(path: str) -> None:
    """Raise UnusableDevicesError if no socket can have this absolute path."""
    if not path.startswith("/") or not path.isprintable() or len(path.encode()) > MAX_PATH_BYTES:
        raise UnusableDevicesError(
            f"the endpoint {_quoted(path)} is no absolute path of at most {MAX_PATH_BYTES} bytes"
        )


def check_list_size(devices: int, numa_nodes: Iterable[int]) -> None:
    """Raise UnusableDevicesError if a message of ListAndWatch has too many devices or NUMA nodes. `numa_nodes`: their
    number for each device."""
    if devices > MAX_DEVICES:
        raise UnusableDevicesError(f"it lists {devices} devices, more than {MAX_DEVICES}")
    total = sum(numa_nodes)
    if total > MAX_NUMA_NODES:
        raise UnusableDevicesError(f"its devices list {total} NUMA nodes, more than {MAX_NUMA_NODES}")


def checked_devices(listed: Iterable[Listed]) -> tuple[Device, ...]:
    """Return the devices of one message of ListAndWatch, by id. Of an id that is listed twice, the last one counts.
    Raises UnusableDevicesError."""
    found: dict[str, Device] = {}
    for name, health, nodes in listed:
        if not name or len(name) > MAX_ID_CHARACTERS or not name.isprintable():
            allowed = f"an id has 1 to {MAX_ID_CHARACTERS} printable characters"
            raise UnusableDevicesError(f"it lists a device with the id {_quoted(name)}: {allowed}")
        near = tuple(sorted({node for node in nodes if 0 <= node <= MAX_NUMA_NODE}))
        found[name] = Device(id=name, healthy=health == HEALTHY, nodes=near)
    return tuple(found[name] for name in sorted(found))


def _quoted(text: str) -> str:
    return json.dumps(text[:128], ensure_ascii=False)
