"""The address of a client, as the limits count it and as logs show it. Pure."""

from ipaddress import IPv6Address, ip_address, ip_network


def group_of(address: str) -> str:
    """Return the address as the limits count it: an IPv4 address, or the first 64 bits of an IPv6 address, which one
    host may have. What is no IP address counts as it is."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))
    return str(ip)


def shown_address(remote: str | None) -> str:
    """Return a client's address as it is logged and forwarded: that of an IPv4 client, which a listener of both
    families sees as ::ffff:10.0.0.1, is 10.0.0.1. None = ""."""
    text = remote or ""
    return text.removeprefix("::ffff:") if "." in text else text
