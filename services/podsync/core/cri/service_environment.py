"""Builds the environment variables of a container for the cluster's Services (pods.md 6.3.1, B.4). Pure."""

from collections.abc import Iterable
from typing import Any

from shared.model.objects import Object, name, namespace

_MASTER = ("default", "kubernetes")


def service_environment(services: Iterable[Object], pod_namespace: str, *, links: bool) -> dict[str, str]:
    """Return the variables of Services for a pod of this namespace: those of `default/kubernetes`, and with `links`
    (spec.enableServiceLinks) those of its own namespace, which replace the former of the same name."""
    chosen: dict[str, Object] = {}
    for service in services:
        if _has_address(service) and (namespace(service), name(service)) == _MASTER:
            chosen.setdefault(name(service), service)
    for service in services:
        if links and namespace(service) == pod_namespace and _has_address(service):
            chosen[name(service)] = service
    env: dict[str, str] = {}
    for key in sorted(chosen):
        env |= _variables(chosen[key])
    return env


def _has_address(service: Object) -> bool:
    return (service.get("spec") or {}).get("clusterIP") not in (None, "", "None")


def _variables(service: Object) -> dict[str, str]:
    spec: dict[str, Any] = service.get("spec") or {}
    ports = [port for port in spec.get("ports") or () if isinstance(port, dict) and "port" in port]
    prefix, address = _variable_name(name(service)), str(spec["clusterIP"])
    if not ports:
        return {}
    env = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(ports[0]["port"])}
    for port in ports:
        if port.get("name"):
            env[f"{prefix}_SERVICE_PORT_{_variable_name(port['name'])}"] = str(port["port"])
    for index, port in enumerate(ports):
        protocol, number = str(port.get("protocol") or "TCP"), str(port["port"])
        host = f"[{address}]" if ":" in address else address
        url = f"{protocol.lower()}://{host}:{number}"
        if index == 0:
            env[f"{prefix}_PORT"] = url
        port_prefix = f"{prefix}_PORT_{number}_{protocol.upper()}"
        env |= {
            port_prefix: url,
            f"{port_prefix}_PROTO": protocol.lower(),
            f"{port_prefix}_PORT": number,
            f"{port_prefix}_ADDR": address,
        }
    return env


def _variable_name(text: str) -> str:
    return text.upper().replace("-", "_")
