"""Calls the OpenSSL that Python's ssl module is linked with, by ctypes, for what ssl does not offer: request a client
certificate without verifying it, verify one outside of a handshake, show CA names, restrict key exchange groups.

Knows OpenSSL's C functions and where CPython keeps the SSL_CTX; must not know files, configuration or HTTP. Where the
layout or a function is not as expected, `find_openssl` returns None, and callers use what ssl offers.
"""

import _ssl
import calendar
import ctypes
import os
import ssl
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import c_char_p, c_int, c_long, c_ulong, c_void_p
from functools import cache
from pathlib import Path

_SET_GROUPS_LIST = 92  # SSL_CTRL_SET_GROUPS_LIST
_TRUSTED_FIRST = 0x8000
_PARTIAL_CHAIN = 0x80000  # every certificate in the CA file is an anchor, self-signed or not, as in Go
_AUTHENTICATION_LEVEL = 1  # no SHA-1 signatures, no RSA below 1024 bits, whatever the handshake is allowed
_CHECKED_BYTES = 512  # of the object, which must be readable

_FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "ASN1_TIME_to_tm": (c_int, (c_void_p, c_void_p)),
    "ERR_clear_error": (None, ()),
    "OPENSSL_sk_free": (None, (c_void_p,)),
    "OPENSSL_sk_new_null": (c_void_p, ()),
    "OPENSSL_sk_push": (c_int, (c_void_p, c_void_p)),
    "SSL_CTX_ctrl": (c_long, (c_void_p, c_int, c_long, c_void_p)),
    "SSL_CTX_get_cert_store": (c_void_p, (c_void_p,)),
    "SSL_CTX_get_verify_mode": (c_int, (c_void_p,)),
    "SSL_CTX_set_cert_verify_callback": (None, (c_void_p, c_void_p, c_void_p)),
    "SSL_CTX_set_client_CA_list": (None, (c_void_p, c_void_p)),
    "SSL_load_client_CA_file": (c_void_p, (c_char_p,)),
    "X509_STORE_CTX_free": (None, (c_void_p,)),
    "X509_STORE_CTX_get0_param": (c_void_p, (c_void_p,)),
    "X509_STORE_CTX_get_error": (c_int, (c_void_p,)),
    "X509_STORE_CTX_init": (c_int, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "X509_STORE_CTX_new": (c_void_p, ()),
    "X509_STORE_CTX_set_default": (c_int, (c_void_p, c_char_p)),
    "X509_VERIFY_PARAM_set_auth_level": (None, (c_void_p, c_int)),
    "X509_VERIFY_PARAM_set_flags": (c_int, (c_void_p, c_ulong)),
    "X509_free": (None, (c_void_p,)),
    "X509_get0_notAfter": (c_void_p, (c_void_p,)),
    "X509_verify_cert": (c_int, (c_void_p,)),
    "X509_verify_cert_error_string": (c_char_p, (c_long,)),
    "d2i_X509": (c_void_p, (c_void_p, ctypes.POINTER(c_char_p), c_long)),
}


_accept = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)(lambda _chain, _argument: 1)  # a global, so that it is not freed


class OpenSsl:
    """OpenSSL's functions. Methods raise ssl.SSLError where OpenSSL reports an error."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Find the functions. Raises AttributeError when one is missing."""
        self._c = library
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, list(arguments)

    def works(self) -> bool:
        """Return whether CPython keeps the SSL_CTX where this module expects it. Only reads memory that belongs to this
        process."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        address = _address(context)
        if not address or address % ctypes.sizeof(c_void_p):
            return False
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:  # an unmapped address is an error, not a crash
            if len(os.pread(memory.fileno(), _CHECKED_BYTES, address)) != _CHECKED_BYTES:
                return False
        found = []
        for mode in (ssl.CERT_REQUIRED, ssl.CERT_NONE, ssl.CERT_OPTIONAL):
            context.verify_mode = mode
            found.append(self._c.SSL_CTX_get_verify_mode(address))
        return found == [3, 0, 1]

    def accept_any_client_certificate(self, context: ssl.SSLContext) -> None:
        """Let handshakes succeed with any client certificate; that the client has its key is still checked."""
        self._c.SSL_CTX_set_cert_verify_callback(_address(context), ctypes.cast(_accept, c_void_p), None)

    def show_authorities(self, context: ssl.SSLContext, file: str) -> None:
        """Send clients the names of the CAs in this PEM file with the request for a certificate."""
        names = self._c.SSL_load_client_CA_file(os.fsencode(file))
        self._c.ERR_clear_error()
        if not names:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "no CA name could be read")
        self._c.SSL_CTX_set_client_CA_list(_address(context), names)  # OpenSSL takes over the ownership of the list

    def allow_groups(self, context: ssl.SSLContext, names: Sequence[str]) -> None:
        """Restrict key exchange to these groups, named as in OpenSSL ("X25519", "prime256v1")."""
        done = self._c.SSL_CTX_ctrl(_address(context), _SET_GROUPS_LIST, 0, ":".join(names).encode())
        self._c.ERR_clear_error()
        if not done:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, f"no such key exchange group in {', '.join(names)}")

    def why_not_client(self, authority: ssl.SSLContext, chain: Sequence[bytes]) -> str:
        """Verify a client's certificate at this moment with the CAs loaded into `authority`. Return the reason why it
        is not accepted, "" if it is.

        `chain` is DER: the client's certificate, then the others that it sent.
        """
        c = self._c
        with ExitStack() as freeing:
            certificates = []
            for encoded in chain:
                certificate = self._decode(encoded)
                if not certificate:
                    return "a certificate that cannot be read"
                freeing.callback(c.X509_free, certificate)
                certificates.append(certificate)
            others = c.OPENSSL_sk_new_null()
            freeing.callback(c.OPENSSL_sk_free, others)
            for certificate in certificates[1:]:
                c.OPENSSL_sk_push(others, certificate)
            check = c.X509_STORE_CTX_new()
            freeing.callback(c.X509_STORE_CTX_free, check)
            freeing.callback(c.ERR_clear_error)
            store = c.SSL_CTX_get_cert_store(_address(authority))
            if c.X509_STORE_CTX_init(check, store, certificates[0], others) != 1:
                return "out of memory"
            # This checks the dates, and that the usage allows clientAuth.
            if c.X509_STORE_CTX_set_default(check, b"ssl_client") != 1:
                return "OpenSSL has no rules for clients"
            settings = c.X509_STORE_CTX_get0_param(check)
            c.X509_VERIFY_PARAM_set_flags(settings, _TRUSTED_FIRST | _PARTIAL_CHAIN)
            c.X509_VERIFY_PARAM_set_auth_level(settings, _AUTHENTICATION_LEVEL)
            if c.X509_verify_cert(check) == 1:
                return ""
            reason = c.X509_verify_cert_error_string(c.X509_STORE_CTX_get_error(check))
            return str(reason.decode(errors="replace"))

    def not_after(self, encoded: bytes) -> float:
        """Return the wall seconds at which this DER certificate expires. Raises ssl.SSLError when it is none."""
        certificate = self._decode(encoded)
        if not certificate:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "not a certificate")
        fields = (c_int * 32)()  # longer than a struct tm: second, minute, hour, day, month - 1, year - 1900
        try:
            if self._c.ASN1_TIME_to_tm(self._c.X509_get0_notAfter(certificate), fields) != 1:
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, "a certificate without an end")
        finally:
            self._c.X509_free(certificate)
            self._c.ERR_clear_error()
        second, minute, hour, day, month, year = fields[:6]
        return calendar.timegm((year + 1900, month + 1, day, hour, minute, second))

    def _decode(self, encoded: bytes) -> int | None:
        start = c_char_p(encoded)
        certificate: int | None = self._c.d2i_X509(None, ctypes.byref(start), len(encoded))
        if not certificate:
            self._c.ERR_clear_error()
        return certificate


@cache
def find_openssl() -> OpenSsl | None:
    """Return the OpenSSL that the ssl module uses, None where it cannot be reached safely."""
    if sys.implementation.name != "cpython":
        return None
    try:
        # The library is loaded through _ssl, so that the loader finds the one that _ssl is linked with.
        found = OpenSsl(ctypes.CDLL(getattr(_ssl, "__file__", None)))
        return found if found.works() else None
    except (AttributeError, OSError):
        return None


def _address(context: ssl.SSLContext) -> int | None:
    # The pointer to the SSL_CTX is the first field of CPython's object, after the head that every object has.
    return c_void_p.from_address(id(context) + object.__basicsize__).value
