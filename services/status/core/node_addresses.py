"""Decides which addresses the Node has (node.md 1.6 "Addresses"): the configured ones, or those of its name and
routes."""

import contextlib
import ipaddress
from collections.abc import Iterable

from services.status.core.node_facts import HostNetwork, NodeIdentity
from shared.model.fields import dictionaries
from shared.model.objects import Object

PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Addresses = list[dict[str, str]]


class AddressError(ValueError):
    """The addresses cannot be determined; the Node keeps those it has. The text is the kubelet's."""


def node_addresses(identity: NodeIdentity, host: HostNetwork, existing: Addresses) -> Addresses:
    """Return the addresses for `status.addresses`. Raises AddressError.

    With an external cloud provider, existing addresses belong to it and are returned as they are.
    """
    configured = _parsed(identity.node_ips)
    concrete = [ip for ip in configured if not ip.is_unspecified]
    for ip, what in zip(concrete, ("nodeIP", "secondaryNodeIP"), strict=False):
        if reason := why_invalid(ip, host.assigned):
            raise AddressError(f"failed to validate {what}: {reason}")
    hostname = {"type": "Hostname", "address": identity.name}
    if identity.external_cloud_provider:
        if existing:
            return existing
        if not configured:
            return [hostname]
    family = 6 if configured and configured[0].version == 6 else 4
    ips = concrete or [_find_address(identity.name, host, prefer=family)]
    return [*({"type": "InternalIP", "address": str(ip)} for ip in ips), hostname]


def provided_node_ip(identity: NodeIdentity) -> str:
    """Return the value of the annotation that names the configured addresses to a cloud provider; "" = no
    annotation."""
    return ",".join(str(ip) for ip in _parsed(identity.node_ips) if not ip.is_unspecified)


def why_invalid(ip: IPAddress, assigned: Iterable[str]) -> str:
    """Return why this cannot be the node's address, with the kubelet's text; "" = it can."""
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
    """Return the addresses that a Node has; entries that are no addresses are left out."""
    return dictionaries(status.get("addresses"))


def _find_address(name: str, host: HostNetwork, *, prefer: int) -> IPAddress:
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
    """Return the texts that are IP addresses, in order."""
    addresses = []
    for text in texts:
        with contextlib.suppress(ValueError):
            addresses.append(ipaddress.ip_address(text.strip()))
    return addresses
