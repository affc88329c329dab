"""What the main listener offers in a handshake, as openssl shows it: versions, cipher suites, curves."""

import logging
import ssl

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from shared.errors import OperatorError
from tests.process.tls_site import Site, s_client

OLD = "ALL:@SECLEVEL=0"  # for the client, which refuses old versions by itself otherwise


@pytest.fixture
def rsa_site(site: Site) -> Site:
    """The serving key is RSA."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    site.serving_ca.issue(site.serving, "node-1", server=True, key=key)
    return site


@pytest.mark.parametrize(
    ("configured", "spoken"),
    [
        ("", {"1_2", "1_3"}),
        ("VersionTLS10", {"1", "1_1", "1_2", "1_3"}),
        ("VersionTLS11", {"1_1", "1_2", "1_3"}),
        ("VersionTLS12", {"1_2", "1_3"}),
        ("VersionTLS13", {"1_3"}),
    ],
)
@pytest.mark.parametrize("kind", ["ec", "rsa"])
async def test_the_minimum_version_is_kept_and_reached(
    request: pytest.FixtureRequest, configured: str, spoken: set[str], kind: str
) -> None:
    site: Site = request.getfixturevalue("rsa_site" if kind == "rsa" else "site")
    if not (ssl.HAS_TLSv1 and ssl.HAS_TLSv1_1):
        spoken -= {"1", "1_1"}
    async with site.running(tls_min_version=configured, client_ca_file="") as server:
        found = set()
        for version in ("1", "1_1", "1_2", "1_3"):
            code, output = await s_client(server, f"-tls{version}", "-cipher", OLD)
            if code == 0:
                found.add(version)
            else:
                assert "alert protocol version" in output
        assert found == spoken


async def test_old_versions_speak_no_suite_that_the_kubelet_would_not(rsa_site: Site) -> None:
    async with rsa_site.running(tls_min_version="VersionTLS10", client_ca_file="") as server:
        for suite, good in (("ECDHE-RSA-AES128-SHA", True), ("AES128-SHA", False), ("DHE-RSA-AES128-SHA", False)):
            code, output = await s_client(server, "-tls1", "-cipher", f"{suite}:@SECLEVEL=0")
            assert (code == 0) is good, output


async def test_chosen_suites_alone_are_spoken(rsa_site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    chosen = ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_RC4_128_SHA")
    expected = {
        "ECDHE-RSA-AES256-GCM-SHA384": True,
        "AES128-SHA": True,
        "ECDHE-RSA-AES128-GCM-SHA256": False,
        "AES256-SHA": False,
    }
    async with rsa_site.running(tls_cipher_suites=chosen) as server:
        for suite, good in expected.items():
            code, output = await s_client(server, "-tls1_2", "-cipher", suite)
            assert (code == 0) is good, output
            assert f"Cipher is {suite}" in output if good else "alert handshake failure" in output
        _, output = await s_client(server)
        assert "New, TLSv1.3, Cipher is TLS_" in output  # whose suites cannot be chosen
    lines = [record.getMessage() for record in caplog.records if "tlsCipherSuites" in record.getMessage()]
    assert lines == [
        "tlsCipherSuites: TLS_RSA_WITH_AES_128_CBC_SHA is insecure",
        "tlsCipherSuites: TLS_RSA_WITH_RC4_128_SHA is insecure",
        "tlsCipherSuites: TLS_RSA_WITH_RC4_128_SHA is not offered: this machine's OpenSSL lacks it",
    ]


@pytest.mark.parametrize("suite", ["TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_RC4_128_SHA"])
async def test_a_list_with_nothing_for_tls_12_leaves_tls_13_alone(site: Site, suite: str) -> None:
    async with site.running(tls_cipher_suites=(suite,)) as server:
        assert (await s_client(server, "-tls1_3"))[0] == 0
        assert (await s_client(server, "-tls1_2"))[0] != 0


async def test_a_list_beside_tls_13_is_ignored_with_a_warning(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = {"tls_min_version": "VersionTLS13", "tls_cipher_suites": ("TLS_AES_256_GCM_SHA384",)}
    async with site.running(**settings) as server:
        assert (await s_client(server, "-ciphersuites", "TLS_AES_128_GCM_SHA256"))[0] == 0
    assert "tlsCipherSuites is ignored" in caplog.text


async def test_the_chosen_curve_alone_is_spoken(rsa_site: Site) -> None:
    curves = {"P-256": 23, "P-384": 24, "P-521": 25, "X25519": 29}
    for chosen, number in curves.items():
        async with rsa_site.running(tls_curve_preferences=(number,)) as server:
            for curve in curves:
                for version in ("-tls1_2", "-tls1_3"):
                    code, output = await s_client(server, version, "-groups", curve)
                    assert (code == 0) is (curve == chosen), output
    async with rsa_site.running() as server:
        assert (await s_client(server, "-tls1_3", "-groups", "X25519:P-521"))[0] == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"tls_min_version": "VersionTLS9"}, "unknown tls version"),
        ({"tls_cipher_suites": ("TLS_NULL",)}, "Cipher suite TLS_NULL not supported or doesn't exist"),
        ({"tls_curve_preferences": (22,)}, "curve 22"),
        ({"tls_curve_preferences": (4588,)}, "curve 4588 not supported"),
        ({"tls_curve_preferences": (29, 23)}, "2 curves, of which Python's ssl takes one"),
    ],
)
async def test_an_unknown_name_ends_the_start_with_one_line(
    site: Site, setting: dict[str, object], message: str
) -> None:
    with pytest.raises(OperatorError) as failed:
        async with site.running(**setting):
            pass
    assert message in str(failed.value) and "\n" not in str(failed.value)
