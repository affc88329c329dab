"""The main listener over real TLS, asked by Python, curl and openssl: who is let in by which client certificate."""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from services.server.adapters import accepting, client_certificates
from shared.errors import OperatorError
from tests.process.tls_site import (
    Authority,
    Connection,
    Site,
    handshake,
    key_pem,
    run,
    s_client,
    until_accepted,
)
from tests.service.server.running import POD
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS, measure_slowness


@pytest.mark.both_loops
async def test_a_client_certificate_of_the_ca_is_let_in(site: Site) -> None:
    async with site.running() as server:
        await server.node.run_pod()
        status, body = await server.get(server.main + "/pods", **site.client(site.admin))
        assert status == 200
        assert json.loads(body)["items"][0]["metadata"]["name"] == POD
        status, body = await server.get(server.main + "/runningpods/", **site.client(site.admin))
        assert json.loads(body)["items"][0]["metadata"]["name"] == POD
        status, body = await server.get(server.main + "/healthz", **site.client(site.admin))
        assert (status, body) == (200, "ok")
        status, body = await server.get(server.main + "/configz", **site.client(site.admin))
        assert json.loads(body)["kubeletconfig"]["kind"] == "KubeletConfiguration"


async def test_without_a_certificate_the_answer_is_unauthorized(site: Site) -> None:
    async with site.running() as server:
        for path in ("/pods", "/healthz", "/pods/x", "/containerLogs/a/b/c"):
            assert await server.get(server.main + path, **site.client()) == (401, "Unauthorized")
        assert await server.get(server.main + "/", **site.client()) == (404, "404 page not found\n")


async def test_anonymous_access_where_it_is_allowed(site: Site) -> None:
    async with site.running(anonymous_auth=True, webhook_authentication=True) as server:
        assert (await server.get(server.main + "/pods", **site.client()))[0] == 200
        bad_token = {"headers": {"Authorization": "Bearer x"}, **site.client()}
        assert await server.get(server.main + "/pods", **bad_token) == (401, "Unauthorized")


async def test_webhook_authorization_without_an_api_server_cannot_decide(site: Site) -> None:
    async with site.running(authorization_mode="Webhook") as server:
        text = "Authorization error (user=api-server, verb=get, resource=nodes, subresource=pods)"
        assert await server.get(server.main + "/pods", **site.client(site.admin)) == (500, text)


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


async def untrusted(site: Site) -> dict[str, str]:
    """Pairs that the client CA does not verify, and OpenSSL's names for what the client is told."""
    Authority("stranger").issue(site.directory / "stranger", "api-server", "system:masters")
    site.client_ca.issue(site.directory / "expired", "api-server", days=-1)
    site.client_ca.issue(site.directory / "for-servers", "api-server", server=True)
    await issue_by_openssl(site, "sha-1", "-sha1")
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    site.client_ca.issue(site.directory / "short", "api-server", key=short)
    return {
        "stranger": "TLSV1_ALERT_UNKNOWN_CA",
        "expired": "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "for-servers": "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "sha-1": "SSLV3_ALERT_BAD_CERTIFICATE",
        "short": "SSLV3_ALERT_BAD_CERTIFICATE",
    }


async def issue_by_openssl(site: Site, name: str, digest: str) -> None:
    """Make a pair whose signature has this digest, which cryptography may refuse to make."""
    path, ca_key = site.directory / name, site.directory / "client-ca.key"
    ca_key.write_bytes(key_pem(site.client_ca.key))
    (site.directory / "openssl.cnf").write_text("[req]\ndistinguished_name = dn\n[dn]\n")
    request = [
        "openssl",
        "req",
        "-config",
        str(site.directory / "openssl.cnf"),
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        digest,
    ]
    signer = ["-CA", site.client_ca_file, "-CAkey", str(ca_key), "-subj", "/O=system:masters/CN=api-server"]
    code, output = await run(*request, *signer, "-keyout", f"{path}.key", "-out", f"{path}.crt")
    assert code == 0, output


@pytest.mark.both_loops
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_certificate_that_the_client_ca_does_not_verify_ends_the_handshake(
    site: Site, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    expected = await untrusted(site)
    await issue_by_openssl(site, "sha-256", "-sha256")
    async with site.running(anonymous_auth=True) as server:
        found = {}
        for name in expected:
            context = site.client(None, version)["ssl"]
            context.set_ciphers("DEFAULT:@SECLEVEL=0")  # the client sends what the server should refuse
            context.load_cert_chain(site.directory / f"{name}.crt", site.directory / f"{name}.key")
            found[name] = await handshake(server, context)
        assert found == expected
        for pair in (site.admin, site.directory / "sha-256"):
            assert (await server.get(server.main + "/pods", **site.client(pair, version)))[0] == 200
        assert (await server.get(server.main + "/pods", **site.client(None, version)))[0] == 200
    [line] = [record.getMessage() for record in caplog.records if "client certificate" in record.getMessage()]
    assert line == (
        "refused a client certificate of 127.0.0.1 in the TLS handshake: unable to get local issuer certificate "
        "(1 since the last line)"
    )


async def test_old_versions_are_not_served_beside_client_certificates(site: Site) -> None:
    # For them OpenSSL's security level is 0, with which the certificates above that have a SHA-1 signature would count.
    for version in ("VersionTLS10", "VersionTLS11"):
        with pytest.raises(OperatorError, match=r"SHA-1.*VersionTLS12"):
            async with site.running(tls_min_version=version):
                pass


@pytest.mark.parametrize("version", VERSIONS)
async def test_intermediates_count_that_the_client_sends_or_the_ca_file_holds(
    site: Site, version: ssl.TLSVersion
) -> None:
    between = Authority("between", under=site.client_ca)
    alone = between.issue(site.directory / "alone", "api-server", "system:masters")
    with_chain = between.issue(site.directory / "with_chain", "api-server", "system:masters")
    with with_chain.with_suffix(".crt").open("ab") as chain:
        chain.write(between.pem)
    async with site.running() as server:
        assert (await server.get(server.main + "/pods", **site.client(with_chain, version)))[0] == 200
        assert await handshake(server, site.client(alone, version)["ssl"]) == "TLSV1_ALERT_UNKNOWN_CA"
    between.write(Path(site.client_ca_file))  # no self-signed certificate in the file: an anchor all the same
    async with site.running() as server:
        assert (await server.get(server.main + "/pods", **site.client(alone, version)))[0] == 200
        assert await handshake(server, site.client(site.admin, version)["ssl"]) == "TLSV1_ALERT_UNKNOWN_CA"


@pytest.mark.both_loops
async def test_a_certificate_that_ends_during_a_connection_counts_no_more(site: Site) -> None:
    async with site.running() as server:
        seconds = 10 * max(SLOWNESS, measure_slowness())  # until the first request has been answered
        brief = site.client_ca.issue(site.directory / "brief", "api-server", days=seconds / 86400)
        connection = await Connection.open(server, site.client(brief)["ssl"])
        status = await connection.status()
        assert status == 200
        async with asyncio.timeout(seconds + WAIT_SECONDS):
            while status == 200:
                await asyncio.sleep(0.2)
                status = await connection.status()
        assert status == 401
        await connection.end()
        assert await handshake(server, site.client(brief)["ssl"]) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"


@pytest.mark.both_loops
async def test_a_certificate_verified_long_ago_is_verified_again_on_a_new_connection(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An intermediate certificate may have expired, which no handshake sees on a connection that lasts.
    async with site.running(anonymous_auth=True) as server:
        nameless = await Connection.open(server, site.client()["ssl"])
        known = await Connection.open(server, site.client(site.admin)["ssl"])
        for connection in (known, nameless, known, nameless):
            assert await connection.status() == 200
        monkeypatch.setattr(client_certificates, "MAX_VERIFIED_SECONDS", 0.0)
        assert await known.status() == 200
        await known.end()
        for _ in range(2):
            assert await nameless.status() == 200
        await nameless.close()


async def test_clients_are_asked_for_a_certificate_of_any_authority(site: Site) -> None:
    requested = "Requested Signature Algorithms"
    async with site.running() as server:
        _, output = await s_client(server)
        assert requested in output and "No client certificate CA names sent" in output
    async with site.running(client_ca_file="") as server:
        _, output = await s_client(server)
        assert requested not in output


@pytest.mark.both_loops
async def test_a_session_is_not_resumed_after_the_client_ca_changed(site: Site) -> None:
    # TLS 1.2 resumes by session id, which the ssl module cannot turn off on the server's side.
    context = site.client(site.admin, ssl.TLSVersion.TLSv1_2)["ssl"]
    async with site.running() as server:

        def ask(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool, bytes]:
            with (
                socket.create_connection(("127.0.0.1", server.config.port)) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as tls,
            ):
                tls.sendall(b"GET /pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answer = b"".join(iter(lambda: tls.recv(65536), b""))  # a session counts only after an orderly end
                return tls.session, bool(tls.session_reused), answer

        first, resumed, answer = await asyncio.to_thread(ask, None)
        assert not resumed and b" 200 " in answer
        second, resumed, answer = await asyncio.to_thread(ask, first)
        assert resumed and b" 200 " in answer
        Authority("new clients").write(Path(site.client_ca_file))
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    await asyncio.to_thread(ask, second)
        for session in (first, second):
            with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
                await asyncio.to_thread(ask, session)


@pytest.mark.both_loops
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_handshake_that_lasts_while_the_client_ca_changes_lets_nobody_in(
    site: Site, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "MAX_HANDSHAKE_SECONDS", WAIT_SECONDS)
    new_ca = Authority("new clients")
    new_admin = new_ca.issue(site.directory / "new-admin", "api-server", "system:masters")
    async with site.running() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port)
        slow = await begin_handshake(site.client(site.admin, version)["ssl"], reader, writer)
        new_ca.write(Path(site.client_ca_file))
        await (await until_accepted(site, server, new_admin)).close()
        answer = await slow(b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ") and answer.endswith(b"Unauthorized")
        writer.close()


async def begin_handshake(
    context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Callable[[bytes], Coroutine[Any, Any, bytes]]:
    """Send the client's first flight and receive the server's. Return what ends the handshake, sends a request and
    returns all that is received until the server closes the connection."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    writer.write(outgoing.read())
    incoming.write(await reader.read(1 << 16))

    async def finish(request: bytes) -> bytes:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))
        client.write(request)
        writer.write(outgoing.read())
        async with asyncio.timeout(WAIT_SECONDS):
            incoming.write(await reader.read())
        incoming.write_eof()
        return client.read(1 << 16)

    return finish


async def test_curl_and_openssl_agree(site: Site) -> None:
    async with site.running(tls_cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)) as server:
        pair = ["--cert", f"{site.admin}.crt", "--key", f"{site.admin}.key"]
        curl = ["curl", "-sS", "--cacert", site.serving_ca_file, "-w", "\n%{http_code} %{http_version}"]
        assert await run(*curl, *pair, server.main + "/healthz") == (0, "ok\n200 1.1")
        assert await run(*curl, server.main + "/healthz") == (0, "Unauthorized\n401 1.1")
        assert (await run(*curl, *pair, "-I", "-X", "HEAD", server.main + "/pods"))[1].endswith("405 1.1")
        _, output = await s_client(server, "-alpn", "h2,http/1.1", "-tls1_2")
        assert "ALPN protocol: http/1.1" in output
        assert "ECDHE-ECDSA-AES256-GCM-SHA384" in output
