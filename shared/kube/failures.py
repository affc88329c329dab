"""Turns failures below HTTP into one line for an operator: the server, the cause, and what to check.

Never shows a URL's user, a header or a proxy's address: they may hold secrets.
"""

import socket
import ssl
from typing import TypeVar

import aiohttp

from shared.kube.interface import ApiUnansweredError, ApiUnreachableError

_CA = "compare certificate-authority-data in the kubeconfig with the API server's authority"
_NAME = "use a name of the certificate as server, or set tls-server-name in the kubeconfig"
_IDENTITY = "check client-certificate and client-key in the kubeconfig, and when the certificate ends"
_E = TypeVar("_E", bound=BaseException)
_CLOCK = "check this machine's clock, or renew the API server's certificate"


class BrokenStreamError(Exception):
    """A stream of an HTTP/2 connection, or all of them, broke; the text is the cause. `again`: the request may be sent
    again on another connection. `is_outage`: the network failed, not only the server that does not answer or refuses
    more streams."""

    def __init__(self, reason: str, *, again: bool, is_outage: bool = True) -> None:
        super().__init__(reason)
        self.again, self.is_outage = again, is_outage


def unreachable(error: BaseException, peer: str, *, connected: bool = True) -> ApiUnreachableError:
    """Return the error to raise for what aiohttp, ssl, the socket or an HTTP/2 stream raised on a request to `peer`,
    which is host:port. `connected`: the request had a connection; only then is a deadline that passed an
    ApiUnansweredError.
    """
    ours = type(error) is TimeoutError and error.errno is None  # asyncio.timeout's; the kernel's has a number
    unanswered = not error.is_outage if isinstance(error, BrokenStreamError) else ours and connected
    kind = ApiUnansweredError if unanswered else ApiUnreachableError
    return kind(f"{peer}: {_cause(error, connected=connected)}")


def _cause(error: BaseException, *, connected: bool) -> str:
    if isinstance(error, BrokenStreamError):
        return str(error)
    certificate = _find_cause(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        text = (certificate.verify_message or "not trusted").rstrip(".")
        remedy = {10: _CLOCK, 9: _CLOCK, 62: _NAME, 64: _NAME}.get(certificate.verify_code, _CA)
        return f"the server's certificate is refused: {text} ({remedy})"
    tls = _find_cause(error, ssl.SSLError)
    if tls is not None:
        reason = (tls.reason or "handshake failed").replace("_", " ").lower()
        if "alert" in reason:
            return f"the server refused the TLS connection: {reason} ({_IDENTITY})"
        remedy = "is it a TLS port? check server in the kubeconfig"
        return f"TLS failed: {reason} ({remedy})"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered with {error.status} (check proxy-url in the kubeconfig, or HTTPS_PROXY)"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy cannot be reached: {_system(error.os_error)} (check proxy-url, or HTTPS_PROXY)"
    if isinstance(error, aiohttp.ClientConnectorDNSError | socket.gaierror):
        return "the name cannot be resolved (check server in the kubeconfig, and this machine's DNS)"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {_system(error.os_error)}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed before an answer came"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection broke within an answer"
    if isinstance(error, OSError):
        return f"{'the connection broke' if connected else 'no connection'}: {_system(error)}"
    if isinstance(error, aiohttp.InvalidURL):
        return "the URL is not valid (check server in the kubeconfig)"
    return f"the answer is not HTTP: {type(error).__name__}"


def _find_cause(error: BaseException, kind: type[_E]) -> _E | None:
    """Return the error itself or one it wraps, if it is of this kind."""
    current: BaseException | None = error
    for _ in range(8):
        if current is None or (isinstance(current, kind) and not isinstance(current, aiohttp.ClientError)):
            return current  # aiohttp's own inherit from what they wrap, without its attributes
        current = getattr(current, "certificate_error", None) or getattr(current, "os_error", None) or current.__cause__
    return None


def _system(error: OSError) -> str:
    return (error.strerror or type(error).__name__).partition(" [")[0]
