"""The TLS side of the main listener: builds contexts from files and swaps them when a file changes.

The listener keeps one outer context for ever; each handshake is handed the newest good inner one, so a bad new pair
never replaces a good old one and the listener is never reopened.
"""

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from services.server.adapters.directory_watch import DirectoryWatch
from services.server.core.authentication import User, certificate_user
from services.server.core.tls_settings import choose_tls
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError

_LOG = logging.getLogger(__name__)

_RECHECK = 60.0  # seconds; the kubelet's fallback for a change no event told of
_MINIMUM = {
    10: ssl.TLSVersion.TLSv1,
    11: ssl.TLSVersion.TLSv1_1,
    12: ssl.TLSVersion.TLSv1_2,
    13: ssl.TLSVersion.TLSv1_3,
}


@dataclass(frozen=True)
class _Files:
    certificate: bytes
    key: bytes
    client_ca: bytes


class ServingTls:
    """The context for the listener, and what a finished handshake says about the client.

    The constructor raises OperatorError when the configured files cannot be used.
    """

    def __init__(self, config: EffectiveConfig, client_ca_changed: Callable[[], None] = lambda: None) -> None:
        self._config = config
        self._client_ca_changed = client_ca_changed
        try:
            self._choice = choose_tls(config.tls_min_version, config.tls_cipher_suites)
        except ValueError as error:
            raise OperatorError(str(error), where="tlsMinVersion", remedy="use VersionTLS12 or VersionTLS13") from error
        try:
            self._files = self._read_files()
            self._current = self._build()
        except (OSError, ssl.SSLError) as error:
            raise OperatorError(
                f"cannot use the serving pair {config.tls_cert_file}, {config.tls_private_key_file}"
                f" or the client CA {config.client_ca_file or '(none)'}: {_line(error)}",
                where="tlsCertFile, tlsPrivateKeyFile, authentication.x509.clientCAFile",
                remedy="give PEM files that belong together and can be read",
            ) from error
        self._client_ca_generation = 0
        self.context = self._build()
        self.context.sni_callback = self._hand_over

    def user_of(self, connection: ssl.SSLObject) -> User | None:
        """The user a verified client certificate names, None without one."""
        encoded = connection.getpeercert(binary_form=True)
        details = connection.getpeercert()
        if encoded is None or not details:
            return None
        return certificate_user(details.get("subject", ()), hashlib.sha256(encoded).hexdigest())  # type: ignore[arg-type]

    def outlived(self, connection: ssl.SSLObject) -> bool:
        """Whether the client was verified by a resumed session older than the present client CA (TLS 1.2 only)."""
        return self._client_ca_generation > 0 and bool(connection.session_reused)

    def reload(self) -> None:
        """Take up changed files; a set that cannot be used is logged and the last good one kept."""
        try:
            files = self._read_files()
            if files == self._files:
                return
            context = self._build()
        except (OSError, ssl.SSLError) as error:
            _LOG.error("keeping the old TLS files, the new ones cannot be used: %s", _line(error))
            return
        client_ca_changed = files.client_ca != self._files.client_ca
        self._files, self._current = files, context
        _LOG.info("TLS files changed: new connections use %s", self._config.tls_cert_file)
        if client_ca_changed:
            self._client_ca_generation += 1
            self._client_ca_changed()

    async def follow_files(self, watch: DirectoryWatch) -> None:
        """Reload at every change of the files, until cancelled."""
        changed = asyncio.Event()
        parents = sorted({str(Path(path).parent) for path in self._paths() if path})
        with watch.waking(changed, *parents):
            while True:
                changed.clear()
                self.reload()
                try:
                    async with asyncio.timeout(_RECHECK):  # wait_for may swallow a cancellation before Python 3.12
                        await changed.wait()
                except TimeoutError:
                    continue

    def _paths(self) -> tuple[str, str, str]:
        return (self._config.tls_cert_file, self._config.tls_private_key_file, self._config.client_ca_file)

    def _read_files(self) -> _Files:
        return _Files(*(Path(path).read_bytes() if path else b"" for path in self._paths()))

    def _build(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _MINIMUM[self._choice.minimum]
        if self._choice.ciphers:
            context.set_ciphers(self._choice.ciphers)
        context.set_alpn_protocols(["http/1.1"])
        # No tickets: a resumed session would carry a client's identity past a change of the client CA.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        if self._config.tls_cert_file:
            # The password keeps OpenSSL from asking a terminal for the one of an encrypted key.
            context.load_cert_chain(self._config.tls_cert_file, self._config.tls_private_key_file, password="")
        if self._config.client_ca_file:
            context.load_verify_locations(cafile=self._config.client_ca_file)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _hand_over(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _outer: ssl.SSLContext) -> None:
        # OpenSSL calls this for every handshake, with or without a server name from the client.
        connection.context = self._current


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
