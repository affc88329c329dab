"""Which addresses the Node has (node.md 1.6 "Addresses"): the configured ones, or those of its name and routes."""

import ipaddress
from collections.abc import Iterable

from services.status.core.node_facts import HostNetwork, NodeIdentity
from shared.model.objects import Object

PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Addresses = list[dict[str, str]]


class AddressError(ValueError):
    """The addresses cannot be determined; the Node keeps those it has. The text is the kubelet's."""


def node_addresses(identity: NodeIdentity, host: HostNetwork, existing: Addresses) -> Addresses:
    """The addresses for `status.addresses`. Raises AddressError.

    With an external cloud provider addresses that are there belong to it, and are returned as they are.
    """
    given = _parsed(identity.node_ips)
    concrete = [ip for ip in given if not ip.is_unspecified]
    for ip, what in zip(concrete, ("nodeIP", "secondaryNodeIP"), strict=False):
        if reason := why_invalid(ip, host.assigned):
            raise AddressError(f"failed to validate {what}: {reason}")
    hostname = {"type": "Hostname", "address": identity.name}
    if identity.external_cloud_provider:
        if existing:
            return existing
        if not given:
            return [hostname]
    ips = concrete if concrete else [_found(identity.name, host, prefer=6 if given and given[0].version == 6 else 4)]
    return [*({"type": "InternalIP", "address": str(ip)} for ip in ips), hostname]


def provided_node_ip(identity: NodeIdentity) -> str:
    """Return the annotation's value that gives a cloud provider the configured addresses; "" = no annotation."""
    return ",".join(str(ip) for ip in _parsed(identity.node_ips) if not ip.is_unspecified)


def why_invalid(ip: IPAddress, assigned: Iterable[str]) -> str:
    """Why this cannot be the node's address, in the kubelet's words; "" = it can."""
    if ip.is_loopback:
        return "nodeIP can't be loopback address"
    if ip.is_multicast:
        return "nodeIP can't be a multicast address"
    if ip.is_link_local:
        return "nodeIP can't be a link-local unicast address"
    if ip.is_unspecified:
        return "nodeIP can't be an all zeros address"
    if str(ip) not in assigned:
        return f'node IP: "{ip}" not found in the host\'s network interfaces'
    return ""


def existing_addresses(status: Object) -> Addresses:
    """The addresses a Node has; those that are none are left out."""
    addresses = status.get("addresses")
    return [a for a in addresses if isinstance(a, dict)] if isinstance(addresses, list) else []


def _found(name: str, host: HostNetwork, *, prefer: int) -> IPAddress:
    if as_ip := _parsed((name,)):
        return as_ip[0]
    usable = [ip for ip in _parsed(host.resolved) if not why_invalid(ip, host.assigned)]
    routed = _parsed(host.default_routes)
    for candidates in (usable, routed):
        if candidates:  # `sorted` keeps the order within a family
            return sorted(candidates, key=lambda ip: ip.version != prefer)[0]
    reason = "no address of its name is assigned to this host, and no default route has one"
    raise AddressError(f"can't get ip address of node {name}. error: {reason}")


def _parsed(texts: Iterable[str]) -> list[IPAddress]:
    """Those that are IP addresses, in order."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_address(text.strip()))
        except ValueError:
            continue
    return found
