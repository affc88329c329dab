"""Forms the address of a client as limits count it and as logs show it. Pure."""

from ipaddress import IPv6Address, ip_address, ip_network


def group_of(address: str) -> str:
    """Return the address as limits count it: an IPv4 address, or the first 64 bits of an IPv6 address, which one host
    may have. Other text is returned unchanged."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))
    return str(ip)


def shown_address(remote: str | None) -> str:
    """Return a client's address for logs and headers. A listener of both families sees the IPv4 client 10.0.0.1 as
    ::ffff:10.0.0.1; it is returned as 10.0.0.1. None becomes ""."""
    text = remote or ""
    return text.removeprefix("::ffff:") if "." in text else text
