"""Ports of the node that a pod takes for itself, and the port of a container that a probe or hook means."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from shared.model.objects import Object
from shared.podspec.resources import is_sidecar


class HostPort(NamedTuple):
    """One port of the node; `ip` "" means all addresses."""

    protocol: str
    ip: str
    port: int


def host_ports(pod: Object) -> tuple[HostPort, ...]:
    """Return the host ports of regular containers and sidecars, in spec order; ports without a hostPort are none of the
    node's."""
    spec = pod.get("spec") or {}
    lasting = [*(spec.get("containers") or ()), *(c for c in spec.get("initContainers") or () if is_sidecar(c))]
    return tuple(
        HostPort(port.get("protocol") or "TCP", port.get("hostIP") or "", port["hostPort"])
        for container in lasting
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def container_port(port: object, container: Mapping[str, Any]) -> int | str:
    """Return the number of a probe's or hook's port, by name where a port of the container has it; else the kubelet's
    words for why not.
    """
    number: object = port
    if isinstance(port, str):
        entries = container.get("ports")
        ports = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        number = next((entry.get("containerPort") for entry in ports if entry.get("name") == port), None)
        if number is None:
            if not (port.isascii() and port.isdecimal() and len(port) < 10):
                return f'strconv.Atoi: parsing "{port}": invalid syntax'
            number = int(port)
    if isinstance(number, int) and 0 < number < 65536:
        return number
    return f"invalid port number: {number}"
