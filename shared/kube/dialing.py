"""TCP connections to the API server: how long a dial may take, and sockets that notice a peer that has gone silently.

The kubelet dials for 30 s and probes an idle connection every 30 s (config.md 6.2). This agent is to be in
step within ten seconds of an API server's return, also when its packets were dropped without an answer: no dial that
began before, and no connection from before, may be waited for any longer.
"""

import asyncio
import socket
import ssl
from typing import Any, TypeVar

import aiohappyeyeballs

CONNECT_TIMEOUT_SECONDS = 5.0  # for the dial, and again for TLS
_NEXT_ADDRESS_SECONDS = 0.25  # until the next address of a name is tried beside the one before
# An idle connection is probed after 5, 7 and 9 seconds, when the time for unconfirmed bytes is over, too.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
_MAX_UNACKNOWLEDGED_MILLISECONDS = 9_000  # until bytes or probes that are not confirmed break the connection
_P = TypeVar("_P", bound=asyncio.Protocol)


def make_socket(address: Any) -> socket.socket:
    """Return a socket for an entry of getaddrinfo."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, seconds)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _MAX_UNACKNOWLEDGED_MILLISECONDS)
    return made


async def dial(protocol: _P, host: str, port: int, context: ssl.SSLContext, server_name: str) -> _P:
    """Connect `protocol` over TLS. Raises OSError (TimeoutError and ssl.SSLError among them)."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        connected = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS, interleave=1, socket_factory=make_socket
        )
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            await loop.create_connection(lambda: protocol, sock=connected, ssl=context, server_hostname=server_name)
    except BaseException:
        connected.close()
        raise
    return protocol
