"""Limits the TLS versions, cipher suites and the curve to those that this machine's OpenSSL has (config.md 5.2).

Decides which configured settings are not offered, with a remark for each; must not know files or connections.
"""

import ssl
import warnings

from services.server.core.listening.tls_settings import TlsOption, choose_tls
from shared.config.effective import EffectiveConfig

_MINIMUM = {
    10: ssl.TLSVersion.TLSv1,
    11: ssl.TLSVersion.TLSv1_1,
    12: ssl.TLSVersion.TLSv1_2,
    13: ssl.TLSVersion.TLSv1_3,
}
# OpenSSL permits SHA-1 signatures, which handshakes of old TLS versions need, at this level only. The level adds no
# suite: each one is named.
_OLD_VERSIONS_LEVEL = "@SECLEVEL=0"


class TlsSettings:
    """The settings of every context. `remarks` are lines for the log. Raises ValueError with one line."""

    def __init__(self, config: EffectiveConfig) -> None:
        choice = choose_tls(config.tls_min_version, config.tls_cipher_suites, config.tls_curve_preferences)
        self._minimum = choice.minimum
        self.remarks = list(choice.remarks)
        self._ciphers = ""
        if choice.suites is not None:
            self._ciphers = self._offered_ciphers(choice.suites)
        self._curve = choice.curve
        if choice.curve is not None:
            self._try_curve(choice.curve)
        if choice.minimum == 10 and not ssl.HAS_TLSv1:
            self.remarks.append("tlsMinVersion: this machine's OpenSSL was built without TLS 1.0, which is not offered")
        if choice.minimum <= 11 and not ssl.HAS_TLSv1_1:
            self.remarks.append("tlsMinVersion: this machine's OpenSSL was built without TLS 1.1, which is not offered")

    def apply(self, context: ssl.SSLContext) -> None:
        """Set these settings in a new context."""
        with warnings.catch_warnings():  # they are about old versions, which the operator configured
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = _MINIMUM[self._minimum]
        if self._ciphers:
            context.set_ciphers(self._ciphers)
        if self._curve is not None:
            context.set_ecdh_curve(self._curve.openssl)
        context.set_alpn_protocols(["http/1.1"])
        # No tickets are issued: the certificate of a resumed session is not verified again. TLS 1.2 also resumes by
        # session id, which ssl cannot switch off: for 2 hours, and within one context, whose client CA stays the same.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0

    def _offered_ciphers(self, suites: tuple[TlsOption, ...]) -> str:
        """Return OpenSSL's cipher list; when no suite is left, only TLS 1.3 is spoken."""
        level = f":{_OLD_VERSIONS_LEVEL}" if self._minimum < 12 else ""
        offered = [suite.openssl for suite in suites if self._has_cipher(suite)]
        if not offered:
            self._minimum = 13
            return ""
        return ":".join(dict.fromkeys(offered)) + level

    def _has_cipher(self, suite: TlsOption) -> bool:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(f"{suite.openssl}:{_OLD_VERSIONS_LEVEL}")
        except ssl.SSLError:
            self.remarks.append(f"tlsCipherSuites: {suite.name} is not offered: this machine's OpenSSL lacks it")
            return False
        return True

    def _try_curve(self, curve: TlsOption) -> None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(curve.openssl)
        except (ssl.SSLError, ValueError):
            raise ValueError(f"this machine's OpenSSL does not have the curve {curve.name}") from None
