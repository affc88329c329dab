"""Reads what this host is, from the kernel: memory, architecture, the addresses of its default routes. Only reads."""

import platform
import socket
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm", "i686": "386"}
_REMOTES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))  # reserved for documentation
_LOCAL = ("127.", "::1", "fe80:")


def meminfo(proc: Path = Path("/proc")) -> dict[str, int]:
    """Return the lines of `proc`/meminfo: name ("MemTotal") -> bytes; empty where it cannot be read."""
    try:
        lines = (proc / "meminfo").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        match line.split():
            case [name, number, "kB"] if number.isdecimal():
                found[name.rstrip(":")] = int(number) * 1024
    return found


def architecture() -> str:
    """Return the architecture in Go's name, as amd64; the kernel's name where Go has the same."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def default_route_addresses() -> tuple[str, ...]:
    """Return our addresses on the default routes, IPv4 first; () without such a route. Sends nothing."""
    found = []
    for family, remote in _REMOTES:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((remote, 9))  # of a datagram socket: only asks for the route
                found.append(str(probe.getsockname()[0]))
        except OSError:
            continue
    return tuple(ip for ip in found if not ip.startswith(_LOCAL))
