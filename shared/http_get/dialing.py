"""Opens TCP connections for probes and hooks, and returns Go's text for the reason why one could not be opened."""

import asyncio
import functools
import os
import socket
import ssl

_MAX_HEAD_BYTES = 64 * 1024  # bytes a line or head may have


class DialError(Exception):
    """No connection was opened; the text is Go's ("dial tcp 10.0.0.1:80: connect: connection refused")."""


async def dial(
    host: str, port: int, *, tls: bool = False, protocols: tuple[str, ...] = ("h2", "http/1.1")
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; certificates are not verified, and `protocols` are offered in TLS. The caller sets the timeout, and
    closes the connection with `abort`. Raises DialError, ssl.SSLError."""
    try:
        return await asyncio.open_connection(
            host,
            port,
            limit=_MAX_HEAD_BYTES,
            ssl=_unverified(protocols) if tls else None,
            server_hostname=host if tls else None,
        )
    except ssl.SSLError:
        raise
    except socket.gaierror:
        raise DialError(f"dial tcp: lookup {host}: no such host") from None
    except (OSError, UnicodeError) as error:
        raise DialError(f"dial tcp {address(host, port)}: connect: {reason(error)}") from None


def abort(writer: asyncio.StreamWriter) -> None:
    """Close the connection at once, without waiting for the other side."""
    writer.transport.abort()


def address(host: str, port: int) -> str:
    """Return `host:port`, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason(error: Exception) -> str:
    """Return the system's text for the error, as Go writes it: "connection refused"."""
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if isinstance(number, int) and number > 0 else str(error).lower()


@functools.cache
def _unverified(protocols: tuple[str, ...]) -> ssl.SSLContext:
    """Return the one context for these protocols: neither probes nor hooks verify certificates (pods.md 8.4, 10.3)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    return context
