"""The main listener over real TLS, asked by Python, curl and openssl: certificates, client certificates, reload."""

import asyncio
import datetime as dt
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.lacking import require_command
from tests.service.server.running import POD, Running, configuration, running


class Authority:
    """A certificate authority made for one test."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _certificate(self.name, self.name, self.key).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = builder.sign(self.key, hashes.SHA256())

    def write(self, path: Path) -> str:
        """The CA's certificate as a file."""
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)

    def issue(
        self, path: Path, common_name: str, organization: str = "", *, days: int = 1, server: bool = False
    ) -> Path:
        """A leaf: `<path>.crt` and `<path>.key`."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _certificate(x509.Name(attributes), self.name, key, days).add_extension(
            x509.ExtendedKeyUsage([usage]), False
        )
        if server:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
            )
        certificate = builder.sign(self.key, hashes.SHA256())
        path.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        path.with_suffix(".key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return path


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    begins = now - dt.timedelta(days=max(1, 1 - days))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=days))
    )


class Site:
    """Authorities, files and the configuration made from them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.serving_ca, self.client_ca = Authority("serving"), Authority("clients")
        self.serving = self.serving_ca.issue(directory / "serving", "node-1", server=True)
        self.client_ca_file = self.client_ca.write(directory / "client-ca.crt")
        self.serving_ca_file = self.serving_ca.write(directory / "serving-ca.crt")
        self.admin = self.client_ca.issue(directory / "admin", "api-server", "system:masters")

    @asynccontextmanager
    async def running(self, **more: Any) -> AsyncIterator[Running]:
        """A server with the main listener and client certificates asked for."""
        settings: dict[str, Any] = {
            "enable_server": True,
            "read_only_port": 0,
            "healthz_port": 0,
            "tls_cert_file": str(self.serving.with_suffix(".crt")),
            "tls_private_key_file": str(self.serving.with_suffix(".key")),
            "client_ca_file": self.client_ca_file,
            **more,
        }
        async with running(configuration(self.directory, **settings)) as server:
            yield server

    def client(self, pair: Path | None = None, version: ssl.TLSVersion | None = None) -> dict[str, Any]:
        """Request arguments of a client that trusts the serving CA and offers this pair."""
        context = ssl.create_default_context(cafile=self.serving_ca_file)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if pair is not None:
            context.load_cert_chain(pair.with_suffix(".crt"), pair.with_suffix(".key"))
        return {"ssl": context}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def run(*command: str, stdin: bytes = b"") -> tuple[int, str]:
    """Exit code and what it printed."""
    require_command(command[0])
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(20):
        output, _ = await process.communicate(stdin)
    return process.returncode or 0, output.decode(errors="replace")


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


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_certificate_of_another_ca_is_refused_in_the_handshake(site: Site, version: ssl.TLSVersion) -> None:
    stranger = Authority("stranger").issue(site.directory / "stranger", "api-server", "system:masters")
    expired = site.client_ca.issue(site.directory / "expired", "api-server", days=-1)
    wrong_usage = site.client_ca.issue(site.directory / "usage", "api-server", server=True)
    async with site.running() as server:
        for pair in (stranger, expired, wrong_usage):
            with pytest.raises(aiohttp.ClientError):
                await server.get(server.main + "/pods", **site.client(pair, version))
        assert (await server.get(server.main + "/pods", **site.client(site.admin, version)))[0] == 200


async def served_name(site: Site, server: Running) -> str:
    """Common name of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.config.port, **site.client())
    subject = dict(pair[0] for pair in writer.get_extra_info("peercert")["subject"])
    writer.close()
    await writer.wait_closed()
    return str(subject["commonName"])


async def until_served(site: Site, server: Running, name: str) -> None:
    async with asyncio.timeout(10):
        while await served_name(site, server) != name:
            await asyncio.sleep(0)


async def test_a_new_serving_pair_is_taken_up_without_dropping_anyone(site: Site) -> None:
    async with site.running() as server, aiohttp.ClientSession() as client:
        arguments = site.client(site.admin)
        async with client.get(server.main + "/healthz", **arguments) as response:
            assert await response.text() == "ok"
            connection = response.connection
        site.serving_ca.issue(site.serving, "node-1-renewed", server=True)
        await until_served(site, server, "node-1-renewed")
        async with client.get(server.main + "/healthz", **arguments) as response:
            assert await response.text() == "ok"
        assert connection is None or connection.closed


async def test_a_bad_serving_pair_keeps_the_old_one_until_a_good_one_comes(site: Site) -> None:
    async with site.running() as server:
        key = site.serving.with_suffix(".key")
        good = key.read_bytes()
        key.write_bytes(b"half a ke")
        assert await served_name(site, server) == "node-1"
        key.unlink()
        assert await served_name(site, server) == "node-1"
        key.write_bytes(good)
        site.serving_ca.issue(site.serving, "node-1-again", server=True)
        await until_served(site, server, "node-1-again")


async def test_a_changed_client_ca_decides_for_new_and_open_connections(site: Site) -> None:
    new_ca = Authority("new clients")
    new_admin = new_ca.issue(site.directory / "new-admin", "api-server", "system:masters")
    async with site.running() as server:
        old_client = site.client(site.admin)
        assert (await server.get(server.main + "/pods", **old_client))[0] == 200
        new_ca.write(Path(site.client_ca_file))

        async def let_in(arguments: dict[str, Any]) -> bool:
            try:
                return (await server.get(server.main + "/pods", **arguments))[0] == 200
            except aiohttp.ClientError:
                return False

        async with asyncio.timeout(10):
            while not await let_in(site.client(new_admin)):
                await asyncio.sleep(0)
        assert not await let_in(old_client)  # its kept-alive connection included
        Path(site.client_ca_file).write_bytes(b"no certificate")
        assert await let_in(site.client(new_admin))


async def test_a_session_verified_by_the_old_client_ca_cannot_be_resumed(site: Site) -> None:
    # TLS 1.2 resumes by session id, which the ssl module cannot turn off on the server's side.
    context = site.client(site.admin, ssl.TLSVersion.TLSv1_2)["ssl"]
    async with site.running() as server:

        def ask(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bytes]:
            with (
                socket.create_connection(("127.0.0.1", server.config.port)) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as tls,
            ):
                tls.sendall(b"GET /pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return tls.session, tls.recv(65536)

        session, answer = await asyncio.to_thread(ask, None)
        assert b" 200 " in answer
        Authority("new clients").write(Path(site.client_ca_file))
        async with asyncio.timeout(10):
            while True:
                try:
                    _, answer = await asyncio.to_thread(ask, session)
                except (ssl.SSLError, ConnectionError):
                    break
                if b" 401 " in answer:
                    break


async def test_curl_and_openssl_agree(site: Site) -> None:
    async with site.running(tls_cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)) as server:
        pair = ["--cert", f"{site.admin}.crt", "--key", f"{site.admin}.key"]
        curl = ["curl", "-sS", "--cacert", site.serving_ca_file, "-w", "\n%{http_code} %{http_version}"]
        assert await run(*curl, *pair, server.main + "/healthz") == (0, "ok\n200 1.1")
        assert await run(*curl, server.main + "/healthz") == (0, "Unauthorized\n401 1.1")
        assert (await run(*curl, *pair, "-I", "-X", "HEAD", server.main + "/pods"))[1].endswith("405 1.1")
        address = f"127.0.0.1:{server.config.port}"
        hello = ["openssl", "s_client", "-connect", address]
        _, output = await run(*hello, "-alpn", "h2,http/1.1", "-tls1_2")
        assert "ALPN protocol: http/1.1" in output
        assert "ECDHE-ECDSA-AES256-GCM-SHA384" in output
        code, _ = await run(*hello, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256")
        assert code != 0
        code, _ = await run(*hello, "-tls1_1")
        assert code != 0


async def test_the_minimum_version_is_kept(site: Site) -> None:
    async with site.running(tls_min_version="VersionTLS13") as server:
        assert (await server.get(server.main + "/pods", **site.client(site.admin)))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await server.get(server.main + "/pods", **site.client(site.admin, ssl.TLSVersion.TLSv1_2))


@pytest.mark.parametrize(
    "scenario",
    [
        test_a_client_certificate_of_the_ca_is_let_in,
        test_a_new_serving_pair_is_taken_up_without_dropping_anyone,
        test_a_changed_client_ca_decides_for_new_and_open_connections,
        test_a_session_verified_by_the_old_client_ca_cannot_be_resumed,
    ],
)
def test_the_loop_that_services_run_on_does_the_same(
    site: Site, scenario: Callable[[Site], Coroutine[Any, Any, None]]
) -> None:
    # uvloop has a TLS implementation of its own.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario(site))
