"""Serving pair and client CA replaced under open connections: the new files count at once, and end no connection but
those that a CA let in which left the file."""

import asyncio
import gc
import logging
import shutil
import ssl
import statistics
import time
import weakref
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from services.server.adapters.directory_watch import DirectoryWatch
from services.server.adapters.http_limits import MAX_IDLE_SECONDS
from services.server.adapters.tls import ServingTls
from shared.files.atomic import write_atomically
from shared.model.runtime import ContainerState
from tests.process.tls_site import (
    Authority,
    Connection,
    Site,
    handshake,
    key_pem,
    s_client,
    served_name,
    until_accepted,
    until_served,
)
from tests.service.server.running import CONTAINER, NAMESPACE, POD, Running, configuration, pod_log
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS, measure_slowness

CONNECTIONS = 50
LOGS = f"/containerLogs/{NAMESPACE}/{POD}/{CONTAINER}?follow=true"


def line(text: str) -> bytes:
    return f"2024-01-01T00:00:00.000000000Z stdout F {text}\n".encode()


async def asked(server: Running, context: ssl.SSLContext) -> Connection:
    """Return a connection that was answered by 200. One that sends no request is closed after some seconds."""
    connection = await Connection.open(server, context)
    assert await connection.status() == 200
    return connection


@pytest.mark.both_loops
async def test_fifty_connections_outlive_a_new_pair_and_a_client_ca_that_is_added(site: Site) -> None:
    new_ca = Authority("new clients")
    new_admin = new_ca.issue(site.directory / "new-admin", "api-server", "system:masters")
    log = pod_log(site.directory)
    log.write_bytes(line("one"))
    async with site.running(anonymous_auth=True) as server, aiohttp.ClientSession() as session:
        await server.node.run_pod(log)
        old = [await asked(server, site.client(site.admin)["ssl"]) for _ in range(CONNECTIONS // 2)]
        nameless = [await asked(server, site.client()["ssl"]) for _ in range(CONNECTIONS // 2)]
        every = old + nameless
        async with session.get(server.main + LOGS, **site.client(site.admin)) as follower:
            assert await follower.content.readexactly(4) == b"one\n"

            site.renew("node-1-renewed")
            await until_served(site, server, "node-1-renewed", WAIT_SECONDS)
            assert {connection.shown for connection in every} == {"node-1"}
            assert {await connection.status() for connection in every} == {200}

            write_atomically(Path(site.client_ca_file), site.client_ca.pem + new_ca.pem, 0o644)
            new = await until_accepted(site, server, new_admin)
            assert {await connection.status() for connection in every} == {200}  # signed by either

            new_ca.write(Path(site.client_ca_file))  # ends what a CA that left may have let in, and nothing else
            for connection in [new, *old]:
                await connection.end()
            assert {await connection.status() for connection in nameless} == {200}
            assert await handshake(server, site.client(site.admin)["ssl"]) == "TLSV1_ALERT_UNKNOWN_CA"
            new = await until_accepted(site, server, new_admin)

            site.client_ca.write(Path(site.client_ca_file))
            again = await until_accepted(site, server, site.admin)
            await new.end()
            assert await handshake(server, site.client(new_admin)["ssl"]) == "TLSV1_ALERT_UNKNOWN_CA"
            with log.open("ab") as file:
                file.write(line("two"))
            async with asyncio.timeout(WAIT_SECONDS):
                assert await follower.content.readexactly(4) == b"two\n"
        assert {await connection.status() for connection in [again, *nameless]} == {200}
        for connection in [again, *nameless]:
            await connection.close()


@pytest.mark.both_loops
async def test_a_stream_under_way_goes_on_without_the_ca_that_let_it_in_and_its_connection_ends_with_it(
    site: Site,
) -> None:
    log = pod_log(site.directory)
    log.write_bytes(line("one"))
    async with site.running() as server, asyncio.timeout(WAIT_SECONDS):
        await server.node.run_pod(log)
        witness = await Connection.open(server, site.client(site.admin)["ssl"])
        assert await witness.status() == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port, **site.client(site.admin))
        writer.write(f"GET {LOGS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await reader.readuntil(b"one\n")).startswith(b"HTTP/1.1 200 ")
        Authority("new clients").write(Path(site.client_ca_file))
        await witness.end()
        with log.open("ab") as file:
            file.write(line("two"))
        await reader.readuntil(b"two\n")
        server.node.observe(log, ContainerState.EXITED)
        async with asyncio.timeout(MAX_IDLE_SECONDS / 2):
            assert (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()


async def test_openssl_is_shown_the_new_pair(site: Site) -> None:
    async with site.running() as server:
        site.renew("node-1-renewed")
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                _, output = await s_client(server, "-CAfile", site.serving_ca_file)
                if "subject=CN = node-1-renewed\n" in output:
                    break
        assert "Verify return code: 0 (ok)" in output


async def test_a_mounted_secret_is_followed_through_its_links(site: Site) -> None:
    mount = site.directory / "mount"
    generations = [mount / "..1", mount / "..2"]
    for number, generation in enumerate(generations):
        generation.mkdir(parents=True)
        site.serving_ca.issue(generation / "tls", f"node-{number}", server=True)
    (mount / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key"):
        (mount / name).symlink_to(f"..data/{name}")
    settings = {"tls_cert_file": f"{mount}/tls.crt", "tls_private_key_file": f"{mount}/tls.key"}
    async with site.running(**settings) as server:
        assert await served_name(site, server) == "node-0"
        (mount / "..new").symlink_to("..2")
        (mount / "..new").rename(mount / "..data")
        shutil.rmtree(generations[0])
        await until_served(site, server, "node-1")
        site.serving_ca.issue(generations[1] / "tls", "node-2", server=True)  # written in place, behind the links
        await until_served(site, server, "node-2")


async def test_a_folder_that_is_replaced_whole_is_followed(site: Site) -> None:
    folder = site.directory / "deep" / "pki"
    folder.mkdir(parents=True)
    pair = site.serving_ca.issue(folder / "serving", "node-0", server=True)
    settings = {"tls_cert_file": f"{pair}.crt", "tls_private_key_file": f"{pair}.key"}
    async with site.running(**settings) as server:
        assert await served_name(site, server) == "node-0"
        shutil.rmtree(folder.parent)
        for number in (1, 2):
            folder.mkdir(parents=True, exist_ok=True)
            site.serving_ca.issue(pair, f"node-{number}", server=True)
            await until_served(site, server, f"node-{number}")


@pytest.mark.parametrize(("gate", "renewed"), [(True, "node-1-renewed"), (False, "node-1")])
async def test_the_gate_of_the_serving_pair(site: Site, gate: bool, renewed: str) -> None:
    config = configuration(
        site.directory,
        tls_cert_file=f"{site.serving}.crt",
        tls_private_key_file=f"{site.serving}.key",
        client_ca_file=site.client_ca_file,
        feature_gates={"ReloadKubeletServerCertificateFile": gate},
    )
    tls = ServingTls(config)
    site.renew("node-1-renewed")
    new_ca = Authority("new clients")
    new_ca.write(Path(site.client_ca_file))
    assert tls.reload() == ()
    assert shown_by(tls, site) == renewed
    assert tls.clients.authority == new_ca.pem  # which no gate keeps from being reloaded


async def test_a_refused_handshake_does_not_wait_in_memory_for_the_garbage_collector(site: Site) -> None:
    tls = ServingTls(
        configuration(
            site.directory,
            tls_cert_file=f"{site.serving}.crt",
            tls_private_key_file=f"{site.serving}.key",
            client_ca_file=site.client_ca_file,
        )
    )
    stranger = Authority("strangers").issue(site.directory / "stranger", "eve")
    client_in, server_in = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = site.client(stranger)["ssl"].wrap_bio(client_in, server_in, server_hostname="127.0.0.1")
    server = tls.context.wrap_bio(server_in, client_in, server_side=True)
    gc.collect()
    gc.disable()
    try:
        for side in (client, server, client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        with pytest.raises(ssl.SSLError, match="unable to get local issuer certificate"):
            server.do_handshake()
        seen = weakref.ref(server)
        del server, side
        assert seen() is None
    finally:
        gc.enable()


def shown_by(tls: ServingTls, site: Site) -> str:
    """Common name of the certificate of a handshake in memory."""
    client_in, server_in = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = site.client()["ssl"]
    client = context.wrap_bio(client_in, server_in, server_hostname="127.0.0.1")
    server = tls.context.wrap_bio(server_in, client_in, server_side=True)
    for side in (client, server) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return str(dict(pair[0] for pair in client.getpeercert()["subject"])["commonName"])


async def test_a_new_pair_counts_within_milliseconds_of_its_rename(site: Site) -> None:
    # Watched by events: a poll, of whatever pace, would show in the lower quartile.
    current = site.directory / "kubelet-server-current.pem"

    def put(name: str) -> None:
        certificate, key = site.serving_ca.make(name, server=True)
        target = site.directory / f"{name}.pem"
        target.write_bytes(certificate.public_bytes(Encoding.PEM) + key_pem(key))
        (site.directory / "updated").symlink_to(target)
        (site.directory / "updated").rename(current)

    put("node-0")
    config = configuration(site.directory, server_tls_bootstrap=True, cert_dir=str(site.directory))
    tls = ServingTls(config)
    taken = []
    async with DirectoryWatch() as watch:
        following = asyncio.create_task(tls.follow_files(watch))
        for number in range(1, 12):
            await asyncio.sleep(0.02)  # the follower waits
            put(f"node-{number}")
            since = time.monotonic()
            async with asyncio.timeout(WAIT_SECONDS):
                while shown_by(tls, site) != f"node-{number}":
                    await asyncio.sleep(0)
            taken.append(time.monotonic() - since)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert statistics.quantiles(taken)[0] < 0.25 * max(SLOWNESS, measure_slowness()), taken
    print(f"median {statistics.median(taken) * 1000:.1f} ms")


ECDSA_WITH_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")


def der(tag: int, content: bytes) -> bytes:
    """Return an element of DER with this content."""
    length = len(content).to_bytes(2, "big").lstrip(b"\0")
    return bytes([tag]) + (length if len(content) < 0x80 else bytes([0x80 | len(length)]) + length) + content


async def test_a_certificate_of_the_client_ca_that_cannot_be_decoded_is_a_401_and_no_line(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    authority, key = site.client_ca, ec.generate_private_key(ec.SECP256R1())
    template, _ = authority.make("stranger", key=key)
    builder = x509.CertificateBuilder(
        template.issuer, template.subject, template.public_key(), template.serial_number,
        template.not_valid_before_utc, template.not_valid_after_utc,
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName("AAAAAAAA")]), False)  # fmt: skip
    signed = builder.sign(authority.key, hashes.SHA256()).tbs_certificate_bytes.replace(b"AAAAAAAA", b"\xff" * 8)
    signature = authority.key.sign(signed, ec.ECDSA(hashes.SHA256()))
    encoded = der(0x30, signed + ECDSA_WITH_SHA256 + der(0x03, b"\0" + signature))
    stranger = site.directory / "stranger"
    stranger.with_suffix(".crt").write_text(ssl.DER_cert_to_PEM_cert(encoded))
    stranger.with_suffix(".key").write_bytes(key_pem(key))
    async with site.running() as server:
        caplog.clear()  # what the start logs does not count: a port that was in use for a moment, for example
        connection = await Connection.open(server, site.client(stranger)["ssl"])
        assert await connection.status() == 401
        await connection.close()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
