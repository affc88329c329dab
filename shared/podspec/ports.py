"""Ports of the node that a pod takes for itself."""

from typing import NamedTuple

from shared.model.objects import Object
from shared.podspec.resources import is_sidecar


class HostPort(NamedTuple):
    """One port of the node; `ip` "" means all addresses."""

    protocol: str
    ip: str
    port: int


def host_ports(pod: Object) -> tuple[HostPort, ...]:
    """Of regular containers and sidecars, in spec order; ports without a hostPort are none of the node's."""
    spec = pod.get("spec") or {}
    lasting = [*(spec.get("containers") or ()), *(c for c in spec.get("initContainers") or () if is_sidecar(c))]
    return tuple(
        HostPort(port.get("protocol") or "TCP", port.get("hostIP") or "", port["hostPort"])
        for container in lasting
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )
