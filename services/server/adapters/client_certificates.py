"""Says at each request which user the connection's client certificate names (server.md 2).

OpenSSL verifies a certificate in the handshake, with the client CA of that moment. At a request it counts while it has
not expired and no CA of that moment has left the client CA file. Knows connections and CA bytes; must not know where
the CA is read from, nor what users may do.
"""

import hashlib
import ssl
import time
from collections.abc import Callable

from services.server.core.access.authentication import User, certificate_user
from services.server.core.listening.tls_settings import all_certificates, expiry_of

MAX_VERIFIED_SECONDS = 3600.0  # age of a handshake after which a connection ends with its next request


class UntrustedError(Exception):
    """The client's certificate is not accepted; the text is the reason."""


class ClientContext(ssl.SSLContext):
    """A context for handshakes that knows the CAs (DER) with which it verifies client certificates."""

    authorities: frozenset[bytes] = frozenset()


class ClientConnection(ssl.SSLObject):
    """The server's end of a connection that knows when it was opened."""

    opened = 0.0  # monotonic seconds

    def getpeercert(self, binary_form: bool = False) -> dict[str, object] | bytes | None:  # type: ignore[override]
        """Return what ssl's method does, but {} for the decoded form: asyncio and uvloop request that in every
        handshake, and a certificate that cannot be decoded would end the connection there without an answer."""
        return super().getpeercert(True) if binary_form else {}


class ClientCertificates:
    """The client CA in force, and what a certificate is worth with it."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._content = b""
        self._authorities: frozenset[bytes] = frozenset()

    @property
    def authority(self) -> bytes:
        """The client CA in force, as PEM; b"" = none."""
        return self._content

    def trust(self, content: bytes) -> None:
        """Put these CAs (PEM) in force. Raises ssl.SSLError, and changes nothing, when it holds no certificate or one
        that cannot be read."""
        try:
            found = frozenset(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")) for pem in all_certificates(content))
            if not found:
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, "no certificate in it")
            _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), found)
        except ValueError as error:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, f"a certificate in it cannot be read: {error}") from error
        self._content, self._authorities = content, found

    def request_certificates(self, context: ClientContext) -> None:
        """Let handshakes of this context request a client certificate, and end where it is not verified."""
        context.verify_mode = ssl.CERT_OPTIONAL
        # Every certificate in the file is an anchor, self-signed or not, as in Go.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load(context, self._authorities)
        context.authorities = self._authorities

    def find_user(self, connection: ssl.SSLObject) -> User | None:
        """Return the user that the client certificate names, None without a certificate. Raises UntrustedError."""
        if not self._content:
            return None
        encoded = ssl.SSLObject.getpeercert(connection, True)
        if encoded is None:
            return None
        if self.is_revoked(connection):
            raise UntrustedError("verified by a client CA that has been replaced")
        try:
            details, expiry = ssl.SSLObject.getpeercert(connection), expiry_of(encoded)
        except (ssl.SSLError, ValueError) as error:
            raise UntrustedError("a certificate that cannot be read") from error
        assert details  # the handshake has verified it
        if expiry < self._wall():
            raise UntrustedError("certificate has expired")
        return certificate_user(details.get("subject", ()), hashlib.sha256(encoded).hexdigest())  # type: ignore[arg-type]

    def is_revoked(self, connection: ssl.SSLObject) -> bool:
        """Return whether the connection has a certificate which the client CA in force may not verify: a CA of its
        handshake has left the file. With more CAs than before, everything that was verified still is."""
        context = connection.context
        trusted = isinstance(context, ClientContext) and context.authorities <= self._authorities
        return not trusted and ssl.SSLObject.getpeercert(connection, True) is not None

    def is_outdated(self, connection: ssl.SSLObject) -> bool:
        """Return whether the connection should end with this request, so that the next handshake verifies the
        certificate again: meanwhile an intermediate certificate or a CA may have expired."""
        opened = connection.opened if isinstance(connection, ClientConnection) else 0.0
        return self._monotonic() - opened > MAX_VERIFIED_SECONDS


def _load(context: ssl.SSLContext, authorities: frozenset[bytes]) -> None:
    context.load_verify_locations(cadata=b"".join(sorted(authorities)))
    if context.cert_store_stats()["x509"] != len(authorities):  # ssl takes some damaged ones for the end of the data
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, "a certificate in it cannot be read")
