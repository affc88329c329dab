"""The kubelet's names for TLS versions and cipher suites in OpenSSL's terms (config.md 5.2). Loads no certificate."""

from dataclasses import dataclass

_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
_VERSIONS = {"": 12, "VersionTLS10": 10, "VersionTLS11": 11, "VersionTLS12": 12, "VersionTLS13": 13}


@dataclass(frozen=True)
class TlsChoice:
    """`minimum` is 10, 11, 12 or 13; `ciphers` is OpenSSL's list for TLS 1.2 and older, "" = the library's default."""

    minimum: int
    ciphers: str


def choose_tls(min_version: str, suites: tuple[str, ...]) -> TlsChoice:
    """Translate the configuration's names. Suites of TLS 1.3 cannot be chosen; a list of nothing else leaves only 1.3,
    as does a list of suites this OpenSSL was built without. Raises ValueError naming an unknown version."""
    if min_version not in _VERSIONS:
        raise ValueError(f"unknown tls version {min_version!r}")
    minimum = _VERSIONS[min_version]
    if not suites or minimum == 13:
        return TlsChoice(minimum, "")
    names = [_SUITES[suite] for suite in suites if suite in _SUITES]
    return TlsChoice(minimum, ":".join(dict.fromkeys(names))) if names else TlsChoice(13, "")
