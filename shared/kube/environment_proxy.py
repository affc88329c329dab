"""Decides which proxy the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for a URL, by the rules of Go's package
httpproxy, which the kubelet follows (config.md 6.2). Imports no client.
"""

import ipaddress
import os
import urllib.parse
from collections.abc import Mapping

_DEFAULT_PORTS = {"http": "80", "https": "443"}
_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class UnsupportedProxyError(ValueError):
    """The proxy is none of HTTP. `str()` is one line with the variable and a remedy, without the URL: it may hold a
    password."""


def proxy_of_environment(server: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the proxy that the environment names for this URL; "" = none. Raises ValueError for no URL,
    and UnsupportedProxyError for a proxy of a protocol other than HTTP, such as SOCKS."""
    parts = urllib.parse.urlsplit(server)
    if parts.scheme not in _DEFAULT_PORTS:
        return ""
    variable = f"{parts.scheme}_proxy".upper()
    proxy = _value(environment, variable)
    port = str(parts.port or _DEFAULT_PORTS[parts.scheme])
    if not proxy or is_exempt(_value(environment, "NO_PROXY"), parts.hostname or "", port):
        return ""
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    scheme = proxy.partition("://")[0].lower()
    if scheme not in _DEFAULT_PORTS:
        remedy = "set it to the http:// URL of a proxy that speaks CONNECT, or name the host in NO_PROXY"
        raise UnsupportedProxyError(f"{variable} names a proxy of {scheme[:20]}://, which is not supported ({remedy})")
    return proxy


def is_exempt(no_proxy: str, host: str, port: str) -> bool:
    """Return whether a host is reached without a proxy: itself this machine, or named in `no_proxy`.

    `no_proxy` is a list with commas of `*`; IP addresses, with or without a port; CIDR ranges; domains, which mean
    their subdomains, too; `.domain` and `*.domain`, which mean only those. A port limits an address or a domain to it.
    """
    host = host.strip().lower()
    address = _address(host.partition("%")[0])
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry.strip().lower(), host, address, port) for entry in no_proxy.split(","))


def _matches(entry: str, host: str, address: _Ip | None, port: str) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    network = _network(entry)
    if network is not None:
        return address is not None and address in network
    name, only_port = _split_port(entry)
    if not name or only_port not in ("", port):
        return False
    named = _address(name)
    if named is not None or address is not None:
        return named == address
    name = name.removeprefix("*") if name.startswith("*.") else name
    below = _ascii(name.removeprefix("."))
    return _ascii(host).endswith(f".{below}") or (not name.startswith(".") and _ascii(host) == below)


def _split_port(entry: str) -> tuple[str, str]:
    """Split `host:port` or `[address]:port`; an IPv6 address without brackets has no port."""
    name, colon, port = entry.rpartition(":")
    if not colon or (":" in name and not (name.startswith("[") and name.endswith("]"))) or name == "[":
        return entry, ""
    return name.removeprefix("[").removesuffix("]"), port


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    _, slash, length = entry.partition("/")
    if not slash or not length.isdecimal():  # Python also takes a mask, which Go does not
        return None
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _address(text: str) -> _Ip | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address


def _ascii(name: str) -> str:
    try:
        return name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        return name


def _value(environment: Mapping[str, str], variable: str) -> str:
    return environment.get(variable) or environment.get(variable.lower()) or ""
