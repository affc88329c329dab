"""Kubelet names of TLS settings in OpenSSL's terms."""

import ssl

import pytest

from services.server.core.tls_settings import _SUITES, TlsChoice, choose_tls


def test_nothing_configured_is_tls_12_with_the_librarys_suites() -> None:
    assert choose_tls("", ()) == TlsChoice(12, "")


def test_suites_are_translated_in_order() -> None:
    suites = ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256")
    assert choose_tls("VersionTLS12", suites) == TlsChoice(12, "ECDHE-RSA-AES256-GCM-SHA384:AES128-GCM-SHA256")


def test_suites_do_not_matter_to_tls_13() -> None:
    assert choose_tls("VersionTLS13", ("TLS_RSA_WITH_AES_128_GCM_SHA256",)) == TlsChoice(13, "")


def test_a_list_of_tls_13_suites_alone_leaves_tls_13_alone() -> None:
    assert choose_tls("", ("TLS_AES_128_GCM_SHA256",)) == TlsChoice(13, "")


def test_an_unknown_version_is_named() -> None:
    with pytest.raises(ValueError, match="VersionTLS9"):
        choose_tls("VersionTLS9", ())


@pytest.mark.parametrize("suite", sorted(_SUITES))
def test_every_suite_is_one_openssl_knows(suite: str) -> None:
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(_SUITES[suite] + ":@SECLEVEL=0")
