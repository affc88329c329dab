"""Reads facts of machine and network for the Node, from files, the resolver and the routing table. Sends nothing."""

import asyncio
import os
import re
import socket
from pathlib import Path
from typing import Protocol

from services.status.core.node_facts import HostNetwork, MachineFacts
from shared.host.device_checkpoint import CHECKPOINT, DeviceCheckpoint
from shared.host.machine import architecture, default_route_addresses, meminfo

_LEAF = re.compile(r"\s*\|-- (\S+)")  # of the kernel's table of addresses
_MACHINE_IDS = ("etc/machine-id", "var/lib/dbus/machine-id")
_SYSTEM_UUIDS = (
    "sys/class/dmi/id/product_uuid",
    "proc/device-tree/system-id",
    "proc/device-tree/vm,uuid",
    "etc/machine-id",
)
_OS_RELEASES = ("etc/os-release", "usr/lib/os-release")


class Host(Protocol):
    """Reads the facts of the machine that the Node shows."""

    async def machine(self) -> MachineFacts:
        """Return the facts that do not change while the process runs."""
        ...

    async def network(self, name: str) -> HostNetwork:
        """Return the present addresses; `name` is looked up unless it is "". It may take as long as the resolver."""
        ...

    async def devices(self) -> frozenset[str]:
        """Return the resources that the device plugin checkpoint names now."""
        ...

    async def has_device_checkpoint(self) -> bool:
        """Return whether an agent of this machine has left a device plugin checkpoint."""
        ...


class LocalHost:
    """Reads the facts of the machine that this process runs on."""

    def __init__(self, root_dir: Path) -> None:
        self._devices = DeviceCheckpoint()
        self._own = DeviceCheckpoint(root_dir / CHECKPOINT.parent.name / CHECKPOINT.name)

    async def machine(self) -> MachineFacts:
        """Read the machine's facts from files."""
        return await asyncio.to_thread(read_machine, Path("/"))

    async def network(self, name: str) -> HostNetwork:
        """Read the addresses from the kernel's tables and the resolver."""
        return await asyncio.to_thread(_network, name)

    async def devices(self) -> frozenset[str]:
        """Read the resources from the checkpoint, if it has changed."""
        return await asyncio.to_thread(self._devices.resources)

    async def has_device_checkpoint(self) -> bool:
        """Look for the files of another kubelet and of this agent."""
        return await asyncio.to_thread(lambda: self._devices.exists() or self._own.exists())


def read_machine(root: Path) -> MachineFacts:
    """Return the facts of the machine whose root directory is `root`; those that cannot be read are empty (node.md 1.6,
    nodeInfo sources)."""
    return MachineFacts(
        machine_id=_first(root, _MACHINE_IDS),
        system_uuid=_first(root, _SYSTEM_UUIDS),
        boot_id=_first(root, ("proc/sys/kernel/random/boot_id",)),
        kernel_version=os.uname().release,
        os_image=_os_image(root),
        architecture=architecture(),
        swap_capacity=meminfo(root / "proc").get("SwapTotal", 0),
    )


def assigned_addresses(root: Path) -> frozenset[str]:
    """Return the addresses of the host's interfaces, from the kernel's tables below `root`; IPv6 in the shortest
    form."""
    addresses = set()
    address = ""
    for line in _text(root / "proc/net/fib_trie").splitlines():
        if leaf := _LEAF.match(line):
            address = leaf[1]
        elif line.strip() == "/32 host LOCAL":
            addresses.add(address)
    for line in _text(root / "proc/net/if_inet6").splitlines():
        digits = line.split(" ", 1)[0]
        if len(digits) == 32:
            addresses.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return frozenset(addresses)


def _network(name: str) -> HostNetwork:
    return HostNetwork(
        assigned=assigned_addresses(Path("/")),
        resolved=_resolved(name) if name else (),
        default_routes=default_route_addresses(),
    )


def _resolved(name: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _first(root: Path, names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := _text(root / name).strip("\0 \t\r\n"))), "")


def _os_image(root: Path) -> str:
    for name in _OS_RELEASES:
        for line in _text(root / name).splitlines():
            if line.startswith("PRETTY_NAME="):
                return line.partition("=")[2].strip().strip("\"'") or "Linux"
    return "Linux"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
