"""Kubelet names of TLS settings in OpenSSL's terms, and the check of the text of PEM files."""

import ssl
import time
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from services.server.core.listening.tls_settings import (
    _FIXED_SUITES,
    _INSECURE,
    _SUITES,
    TlsChoice,
    TlsOption,
    all_certificates,
    choose_tls,
    expiry_of,
    first_certificate,
    pair_problem,
)

PREFERRED = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
]
INSECURE = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
]
NOT_BUILT = {"_RC4_", "_3DES_"}  # that distributions' OpenSSL lacks

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
KEY = b"-----BEGIN RSA PRIVATE KEY-----\nQUJD\n-----END RSA PRIVATE KEY-----\n"


def test_the_accepted_names_are_the_kubelets() -> None:
    assert sorted({*_SUITES, *_FIXED_SUITES}) == sorted(PREFERRED + INSECURE)
    assert sorted(_INSECURE) == sorted(INSECURE)


def test_nothing_configured_is_tls_12_with_the_librarys_suites() -> None:
    assert choose_tls("", ()) == TlsChoice(12)


def test_suites_are_translated_in_order_and_insecure_ones_named() -> None:
    suites = ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256")
    choice = choose_tls("VersionTLS12", suites)
    assert choice.suites == (
        TlsOption(suites[0], "ECDHE-RSA-AES256-GCM-SHA384"),
        TlsOption(suites[2], "AES128-GCM-SHA256"),
    )
    assert choice.remarks == ("tlsCipherSuites: TLS_RSA_WITH_AES_128_GCM_SHA256 is insecure",)


def test_suites_do_not_matter_to_tls_13() -> None:
    choice = choose_tls("VersionTLS13", ("TLS_RSA_WITH_AES_128_GCM_SHA256",))
    assert (choice.minimum, choice.suites) == (13, None)
    [remark] = choice.remarks
    assert "ignored" in remark


def test_a_list_of_tls_13_suites_alone_leaves_nothing_below() -> None:
    assert choose_tls("", ("TLS_AES_128_GCM_SHA256",)).suites == ()


@pytest.mark.parametrize("version", ["VersionTLS10", "VersionTLS11"])
def test_old_versions_get_suites_they_can_speak(version: str) -> None:
    offers = choose_tls(version, ()).suites
    assert offers is not None
    assert {"ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA"} <= {offer.openssl for offer in offers}


@pytest.mark.parametrize(
    ("version", "suites", "curves", "named"),
    [
        ("VersionTLS9", (), (), "VersionTLS9"),
        ("", ("TLS_AES_128_GCM_SHA256", "tls_aes_256_gcm_sha384"), (), "tls_aes_256_gcm_sha384"),
        ("VersionTLS13", ("TLS_NONE",), (), "Cipher suite TLS_NONE not supported or doesn't exist"),
        ("", (), (23, 22), "curve 22"),
        ("", (), (4588,), "curve 4588"),
        ("", (), (23, 29), "2 curves, of which Python's ssl takes one"),
    ],
)
def test_an_unknown_name_is_named(version: str, suites: tuple[str, ...], curves: tuple[int, ...], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        choose_tls(version, suites, curves)


def test_a_curve_is_translated() -> None:
    assert choose_tls("", ()).curve is None
    assert choose_tls("VersionTLS13", (), (23,)).curve == TlsOption("P-256", "prime256v1")


def test_every_suite_is_one_openssl_knows(subtests: pytest.Subtests) -> None:
    for suite in sorted(suite for suite in _SUITES if not any(part in suite for part in NOT_BUILT)):
        with subtests.test(suite):
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(_SUITES[suite] + ":@SECLEVEL=0")


@pytest.mark.parametrize(
    ("certificate", "key", "which", "why"),
    [
        (CERTIFICATE, KEY, "", ""),
        (b"words\n" + CERTIFICATE, CERTIFICATE + KEY, "", ""),
        (b"", KEY, "certificate", "no complete PEM certificate"),
        (CERTIFICATE[:-10], KEY, "certificate", "no complete PEM certificate"),
        (CERTIFICATE, KEY[:40], "key", "no complete PEM private key"),
        (CERTIFICATE, KEY.replace(b"RSA", b"ENCRYPTED"), "key", "encrypted"),
        (CERTIFICATE, KEY.replace(b"KEY-----\nQ", b"KEY-----\nProc-Type: 4,ENCRYPTED\n\nQ"), "key", "encrypted"),
        (CERTIFICATE, KEY.replace(b"RSA ", b""), "", ""),
    ],
)
def test_the_check_of_the_text_of_a_pair(certificate: bytes, key: bytes, which: str, why: str) -> None:
    found, problem = pair_problem(certificate, key)
    assert found == which
    assert why in problem


def test_the_first_certificate_is_the_leaf() -> None:
    assert first_certificate(b"# leaf\n" + CERTIFICATE + CERTIFICATE.replace(b"QUJD", b"REVG")) == CERTIFICATE.strip()
    assert first_certificate(KEY) == b""


def test_all_certificates_are_those_that_go_reads() -> None:
    other = CERTIFICATE.replace(b"QUJD", b"REVG")
    trusted = CERTIFICATE.replace(b"CERTIFICATE", b"TRUSTED CERTIFICATE")
    assert all_certificates(b"# \xc3\xa4\n" + CERTIFICATE + KEY + trusted + other) == [
        CERTIFICATE.strip(),
        other.strip(),
    ]
    assert all_certificates(KEY) == []
    commented = b"".join(b"# " + line for line in other.splitlines(keepends=True))
    assert all_certificates(commented + CERTIFICATE.replace(b"\n", b"\r\n")) == [
        CERTIFICATE.replace(b"\n", b"\r\n").strip()
    ]


@pytest.mark.parametrize("body", [b"", b"####\n", b"QUJD\n-----BEGIN CERTIFICATE-----\nQUJD\n"])
def test_a_block_without_a_whole_certificate_is_no_shorter_list(body: bytes) -> None:
    damaged = b"-----BEGIN CERTIFICATE-----\n" + body + b"-----END CERTIFICATE-----\n"
    with pytest.raises(ValueError, match="empty, cut off, or not base64"):
        all_certificates(CERTIFICATE + damaged)


def test_many_beginnings_without_an_end_are_read_in_linear_time() -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="cut off"):
        all_certificates(b"-----BEGIN CERTIFICATE-----\n" * 30_000)
    assert time.process_time() - began < 5.0


def certificate_until(end: datetime) -> bytes:
    """A DER certificate that expires then, as the cryptography package makes it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n" * 60)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(datetime(1951, 1, 1, tzinfo=UTC)).not_valid_after(end).sign(key, hashes.SHA256())
    return made.public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    "end",
    [
        datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2026, 2, 28, 12, 30, 1, tzinfo=UTC),
        datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2050, 1, 1, tzinfo=UTC),  # from here on with four digits of the year
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ],
)
def test_the_end_of_a_certificate(end: datetime) -> None:
    assert expiry_of(certificate_until(end)) == end.timestamp()


def test_what_is_no_certificate_has_no_end() -> None:
    whole = certificate_until(datetime(2026, 2, 28, tzinfo=UTC))
    for wrong in (b"", b"ABC", b"garbage", KEY, *(whole[:length] for length in range(0, 150, 7))):
        with pytest.raises(ValueError):
            expiry_of(wrong)
