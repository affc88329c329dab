"""Opens TCP connections for probes and hooks, and gives the reason why one could not be opened in Go's words."""

import asyncio
import os
import socket
import ssl

_READ_LIMIT = 64 * 1024  # bytes a line or head may have
_context: ssl.SSLContext | None = None


class DialError(Exception):
    """No connection; the text is Go's."""


async def dial(host: str, port: int, *, tls: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; the caller bounds the time, and ends the connection with `hang_up`. Raises DialError, ssl.SSLError."""
    try:
        return await asyncio.open_connection(
            host, port, limit=_READ_LIMIT, ssl=_unverified() if tls else None, server_hostname=host if tls else None
        )
    except ssl.SSLError:
        raise
    except socket.gaierror:
        raise DialError(f"dial tcp: lookup {host}: no such host") from None
    except (OSError, UnicodeError) as error:
        raise DialError(f"dial tcp {address(host, port)}: connect: {reason(error)}") from None


def hang_up(writer: asyncio.StreamWriter) -> None:
    """End the connection now, without waiting for the other side."""
    writer.transport.abort()


def address(host: str, port: int) -> str:
    """`host:port`, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason(error: Exception) -> str:
    """The system's word for it, as Go writes it."""
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if isinstance(number, int) and number > 0 else str(error).lower()


def _unverified() -> ssl.SSLContext:
    """Made once, when first needed: neither probes nor hooks verify (pods.md 8.4, 10.3)."""
    global _context  # noqa: PLW0603
    if _context is None:
        _context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _context.check_hostname = False
        _context.verify_mode = ssl.CERT_NONE
        _context.set_alpn_protocols(["h2", "http/1.1"])
    return _context
