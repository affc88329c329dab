"""The kubelet's names for TLS versions, cipher suites and curves in OpenSSL's terms (config.md 5.2). Must not know
what this machine's OpenSSL was built with, nor load a certificate."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}
_FIXED_SUITES = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}  # of TLS 1.3
_INSECURE = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    *(suite for suite in _SUITES if suite.startswith("TLS_RSA_") or "_RC4_" in suite or "_3DES_" in suite),
}
# What the kubelet offers below TLS 1.2 when nothing is chosen; OpenSSL's own list has nothing for so old a version.
_OLD_VERSIONS_OFFER = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
)
_VERSIONS = {"": 12, "VersionTLS10": 10, "VersionTLS11": 11, "VersionTLS12": 12, "VersionTLS13": 13}
_CURVES = {
    23: ("P-256", "prime256v1"),
    24: ("P-384", "secp384r1"),
    25: ("P-521", "secp521r1"),
    29: ("X25519", "X25519"),
}


@dataclass(frozen=True)
class TlsOption:
    """One suite or curve: the name the operator knows it by, and OpenSSL's."""

    name: str
    openssl: str


@dataclass(frozen=True)
class TlsChoice:
    """`minimum` is 10, 11, 12 or 13. `suites` are for TLS 1.2 and older, None = the library's own; so for `curve`.
    `remarks` are lines for the log."""

    minimum: int
    suites: tuple[TlsOption, ...] | None = None
    curve: TlsOption | None = None
    remarks: tuple[str, ...] = ()


def choose_tls(min_version: str, suites: Sequence[str], curves: Sequence[int] = ()) -> TlsChoice:
    """Translate the configuration's names. Suites of TLS 1.3 cannot be chosen; a list of nothing else leaves only 1.3.
    Raises ValueError naming an unknown version, suite or curve, or a second curve: until Python 3.15 ssl takes one."""
    if min_version not in _VERSIONS:
        raise ValueError(f"unknown tls version {min_version!r}")
    minimum = _VERSIONS[min_version]
    if unknown := [suite for suite in suites if suite not in _SUITES and suite not in _FIXED_SUITES]:
        raise ValueError(f"Cipher suite {unknown[0]} not supported or doesn't exist")
    if strange := [curve for curve in curves if curve not in _CURVES]:
        raise ValueError(f"curve {strange[0]} not supported or doesn't exist")
    remarks = [f"tlsCipherSuites: {suite} is insecure" for suite in suites if suite in _INSECURE]
    if len(curves) > 1:
        raise ValueError(f"{len(curves)} curves, of which Python's ssl takes one")
    chosen = TlsOption(*_CURVES[curves[0]]) if curves else None
    if minimum == 13:
        ignored = ["tlsCipherSuites is ignored: the suites of TLS 1.3 cannot be chosen"] if suites else []
        return TlsChoice(minimum, None, chosen, tuple(ignored))
    if not suites:
        old = minimum < 12
        return TlsChoice(minimum, tuple(TlsOption(s, _SUITES[s]) for s in _OLD_VERSIONS_OFFER) if old else None, chosen)
    offers = tuple(TlsOption(suite, _SUITES[suite]) for suite in dict.fromkeys(suites) if suite in _SUITES)
    return TlsChoice(minimum, offers, chosen, tuple(remarks))


# Markers count at the beginning of a line alone, as in OpenSSL and Go: a line that begins with `#` is a comment.
_CERTIFICATE = re.compile(
    rb"^-----BEGIN CERTIFICATE-----\s+[A-Za-z0-9+/=][A-Za-z0-9+/=\s]*^-----END CERTIFICATE-----", re.MULTILINE
)
_CERTIFICATE_BEGIN = re.compile(rb"^-----BEGIN CERTIFICATE-----", re.MULTILINE)
_DER_VERSION, _DER_UTC_TIME = 0xA0, 0x17  # tags
_KEY = re.compile(rb"-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----\s.*?-----END ", re.DOTALL)


def first_certificate(pem: bytes) -> bytes:
    """Return the first certificate in a PEM file, with its markers; b"" when there is none."""
    found = _CERTIFICATE.search(pem)
    return found.group() if found else b""


def all_certificates(pem: bytes) -> list[bytes]:
    """Return the certificates in a PEM file, with their markers. Blocks with other markers do not count, as in Go.
    Raises ValueError for a block that is empty, cut off, or not base64."""
    found = _CERTIFICATE.findall(pem)
    if len(found) != len(_CERTIFICATE_BEGIN.findall(pem)):
        raise ValueError("it is empty, cut off, or not base64")
    return found


def expiry_of(certificate: bytes) -> float:
    """Return the wall seconds at which a DER certificate expires (RFC 5280 4.1.2.5). Raises ValueError when it is none.

    Python's ssl decodes only the certificate of a peer that it has verified.
    """
    try:
        at, _ = _der_content(certificate, 0)  # Certificate
        at, _ = _der_content(certificate, at)  # TBSCertificate
        for _ in range(4 if certificate[at] == _DER_VERSION else 3):  # version, serial number, signature, issuer
            _, at = _der_content(certificate, at)
        at, _ = _der_content(certificate, at)  # Validity
        _, at = _der_content(certificate, at)  # notBefore
        text = certificate[slice(*_der_content(certificate, at))].decode("ascii")
    except IndexError:
        raise ValueError("not a certificate") from None
    if certificate[at] == _DER_UTC_TIME:  # two digits of the year, 1950 to 2049
        text = ("19" if text >= "50" else "20") + text
    if text[14:] != "Z":
        raise ValueError("the time of a certificate is not in UTC")
    # Not strptime: it would import a module and compile patterns in the running process.
    return datetime.fromisoformat(f"{text[:8]}T{text[8:14]}+0000").timestamp()


def _der_content(data: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the DER element at `at` begins and ends. Raises IndexError."""
    begin, length = at + 2, data[at + 1]
    if length & 0x80:  # the low bits are the number of bytes of the length
        begin += length & 0x7F
        length = int.from_bytes(data[at + 2 : begin], "big")
    return begin, begin + length


def pair_problem(certificate: bytes, key: bytes) -> tuple[str, str]:
    """Check the text of two PEM files: return which is bad ("certificate", "key" or "") and why."""
    if not first_certificate(certificate):
        return "certificate", "holds no complete PEM certificate"
    found = _KEY.search(key)
    if not found:
        return "key", "holds no complete PEM private key"
    if b"ENCRYPTED" in found.group():
        return "key", "is encrypted, and no password can be given"
    return "", ""
