"""Decides which names and usages a certificate needs, as the control plane's signers expect, and whether one has them.

Rules: config.md 5.4-5.6. Pure; it depends on no key and no encoding.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
_NODES = "system:nodes"
_FIRST_WITHOUT_ENCIPHERMENT = (1, 27)  # older signers want the usage from every kind of key


class Template(Struct, frozen=True, kw_only=True):
    """The certificate to request. Names and addresses are sorted and without duplicates."""

    signer: str
    common_name: str
    purpose: str  # the extended key usage: "client auth" or "server auth"
    organizations: tuple[str, ...] = (_NODES,)
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class CertificateFacts(Struct, frozen=True, kw_only=True):
    """The content of a leaf certificate. Times are wall seconds."""

    not_before: float
    not_after: float
    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def client_template(node_name: str) -> Template:
    """Return the template of the node's client certificate."""
    return Template(signer=CLIENT_SIGNER, common_name=f"system:node:{node_name}", purpose="client auth")


def serving_template(
    node_name: str, addresses: Iterable[Mapping[str, Any]], *, dns_only_allowed: bool
) -> Template | None:
    """Return the template of the serving certificate for `node.status.addresses`; None while there are no addresses."""
    names, ips = set(), set()
    for address in addresses:
        kind, text = address.get("type"), str(address.get("address") or "")
        ip = _ip(text)
        if kind in ("Hostname", "InternalIP", "ExternalIP") and ip:
            ips.add(ip)
        elif kind in ("Hostname", "InternalDNS", "ExternalDNS") and text:
            names.add(text)
    if not ips and not (dns_only_allowed and names):
        return None
    return Template(
        signer=SERVING_SIGNER,
        common_name=f"system:node:{node_name}",
        purpose="server auth",
        dns_names=tuple(sorted(names)),
        addresses=tuple(sorted(ips)),
    )


def _ip(text: str) -> str:
    """Return the address as certificates have it, "" if it is invalid."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id:
            return ""
        return str(found.ipv4_mapped or found)
    return str(found)


def covers(facts: CertificateFacts, template: Template) -> bool:
    """Return whether the certificate contains everything that the template names; it may contain more."""
    return (
        facts.common_name == template.common_name
        and set(template.organizations) <= set(facts.organizations)
        and set(template.dns_names) <= set(facts.dns_names)
        and set(template.addresses) <= set(facts.addresses)
    )


def usages(template: Template, *, encipherment: bool) -> tuple[str, ...]:
    """Return the usages to request, in the order from which the names of deterministic requests are made."""
    return ("digital signature", *(("key encipherment",) if encipherment else ()), template.purpose)


def demands_key_encipherment(version: Mapping[str, Any]) -> bool:
    """Return whether signers of a server with this answer to /version demand `key encipherment` also from ECDSA
    keys."""
    major, minor = (_number(version.get(part)) for part in ("major", "minor"))
    return major > 0 and (major, minor) < _FIRST_WITHOUT_ENCIPHERMENT


def _number(text: Any) -> int:
    """Return the number with which a part of a version begins; providers write `20+`."""
    digits = ""
    for character in str(text or ""):
        if not ("0" <= character <= "9"):
            break
        digits += character
    return int(digits or 0)
