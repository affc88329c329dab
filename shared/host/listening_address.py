"""Binds the address of a listener as Go does: an unspecified one, also 0.0.0.0, takes IPv4 and IPv6. Opens sockets."""

import errno
import socket
from ipaddress import ip_address

# What the system answers where it has no IPv6: the family does not exist, or no interface may have an address of it.
_WITHOUT_IPV6 = {errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL}


def bind(address: str, port: int) -> socket.socket:
    """Return a TCP socket with this IP address and port, which does not listen yet; port 0 takes a free one.

    0.0.0.0 and :: are the addresses of both families (server.md 1); without IPv6 on this machine 0.0.0.0 is IPv4's
    alone. Raises OSError, or ValueError for what is no IP address.
    """
    ip = ip_address(address)
    if not ip.is_unspecified:
        return _bind(socket.AF_INET if ip.version == 4 else socket.AF_INET6, address, port)
    try:
        return _bind(socket.AF_INET6, "::", port)
    except OSError as error:
        if ip.version == 6 or error.errno not in _WITHOUT_IPV6:
            raise
    return _bind(socket.AF_INET, address, port)


def _bind(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier process that are being closed do not keep the port.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address != "::"))
        sock.bind((address, port))
    except BaseException:
        sock.close()
        raise
    return sock
