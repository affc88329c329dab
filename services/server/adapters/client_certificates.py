"""Verifies the client certificate of a connection at each request, against the client CA now in force (server.md 2).

A handshake proves only that the client has the key. So a new CA applies at once to connections that are open already,
and closes none. Knows connections and CA bytes; must not know where the CA is read from, nor what users may do.
"""

import hashlib
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from services.server.adapters.openssl import OpenSsl
from services.server.core.access.authentication import User, certificate_user

_VERDICT_SECONDS = 1.0  # for which a result is reused; OpenSSL takes half a millisecond for one
_MAX_VERDICTS = 256  # results that are kept


class UntrustedError(Exception):
    """The client's certificate is not accepted; the text is the reason."""


class ClientContext(ssl.SSLContext):
    """A TLS context for handshakes that remembers the client CA it was made with."""

    authority: bytes = b""


class ClientCertificates:
    """Verifies certificates. Without `openssl` handshakes verify them, and only the CA of the handshake is checked."""

    def __init__(self, openssl: OpenSsl | None) -> None:
        self._openssl = openssl
        self._content = b""
        self._changes = -1
        self._authority: ssl.SSLContext | None = None
        self._verdicts: dict[bytes, tuple[float, str]] = {}

    @property
    def authority(self) -> bytes:
        """The client CA in force, as PEM; b"" = none."""
        return self._content

    def trust(self, content: bytes) -> None:
        """Put these CAs (PEM) in force. Raises ssl.SSLError, and changes nothing, when it holds no certificate."""
        authority = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with as_file(content) as file:
            authority.load_verify_locations(cafile=file)
            if not authority.cert_store_stats()["x509"]:  # a CRL alone is accepted by the call above
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, "no certificate in it")
            if self._openssl is not None:
                self._openssl.show_authorities(authority, file)  # raises now if the names cannot be read
        self._authority, self._content = authority, content
        self._changes += 1
        self._verdicts = {}

    def ask_for(self, context: ClientContext, shown: bytes) -> None:
        """Let handshakes of this context request a client certificate and show the CA names of `shown` (PEM)."""
        context.verify_mode = ssl.CERT_OPTIONAL
        context.authority = self._content
        with as_file(shown if self._openssl else self._content) as file:
            if self._openssl is None:
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
                context.load_verify_locations(cafile=file)
            else:
                self._openssl.accept_any_client_certificate(context)
                self._openssl.show_authorities(context, file)

    def user_of(self, connection: ssl.SSLObject) -> User | None:
        """Return the user that the client certificate names, None without a certificate. Raises UntrustedError."""
        if self._authority is None:
            return None
        encoded = connection.getpeercert(binary_form=True)
        if encoded is None:
            return None
        if problem := self._problem(connection, encoded):
            raise UntrustedError(problem)
        try:  # The certificate is parsed only after it was verified: before, it may contain anything.
            details = ssl.SSLObject.getpeercert(connection)
        except (ssl.SSLError, ValueError) as error:
            raise UntrustedError("a certificate that cannot be read") from error
        if not details:
            return None
        return certificate_user(details.get("subject", ()), hashlib.sha256(encoded).hexdigest())  # type: ignore[arg-type]

    def _problem(self, connection: ssl.SSLObject, encoded: bytes) -> str:
        assert self._authority is not None
        if self._openssl is None:
            return self._problem_by_handshake(connection)
        chain = _chain(connection, encoded)
        if chain[0] != encoded:
            return "a chain that is not the client's"
        name = hashlib.sha256(b"".join(chain)).digest()
        now = time.monotonic()
        since, problem = self._verdicts.get(name, (-_VERDICT_SECONDS, ""))
        if now - since < _VERDICT_SECONDS:
            return problem
        if len(self._verdicts) >= _MAX_VERDICTS:
            self._verdicts.clear()
        problem = self._openssl.why_not_client(self._authority, chain)
        self._verdicts[name] = now, problem
        return problem

    def _problem_by_handshake(self, connection: ssl.SSLObject) -> str:
        context = connection.context
        by_ours = isinstance(context, ClientContext) and context.authority == self._content
        # A resumed session (TLS 1.2) was verified in an earlier handshake, by a CA that is not recorded.
        if not by_ours or (self._changes and connection.session_reused):
            return "verified before the client CA was replaced"
        return ""


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """The path of a file in memory with this content, so that OpenSSL gets exactly the bytes that were read."""
    descriptor = os.memfd_create("tls")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _chain(connection: ssl.SSLObject, encoded: bytes) -> list[bytes]:
    """Return the certificates that the client sent, DER, its own first."""
    public = getattr(connection, "get_unverified_chain", None)  # Python has this method from 3.13 on
    if public is not None:
        return list(public()) or [encoded]
    private = getattr(getattr(connection, "_sslobj", None), "get_unverified_chain", None)
    found = [certificate.public_bytes(ssl._ssl.ENCODING_DER) for certificate in private() or ()] if private else []  # type: ignore[attr-defined]
    return found or [encoded]
