"""Decides which proxy the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for a URL. Imports no client."""

import ipaddress
import urllib.parse
import urllib.request


def proxy_of_environment(server: str) -> str:
    """Return the URL of the proxy that the environment names for this URL; "" = none. Raises ValueError for no URL."""
    parts = urllib.parse.urlsplit(server)
    host = parts.hostname or ""
    if _is_this_machine(host) or urllib.request.proxy_bypass(host):
        return ""
    proxy = urllib.request.getproxies_environment().get(parts.scheme, "")
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
