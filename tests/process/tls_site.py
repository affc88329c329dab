"""Certificate authorities, serving and client pairs of one test, and clients of the main listener made from them."""

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from services.server.adapters.http_limits import MAX_IDLE_SECONDS
from shared.files.atomic import write_atomically
from tests.service.server.running import Running, configuration, running
from tests.support.installed.lacking import require_command
from tests.support.waits.deadline import WAIT_SECONDS

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """A certificate authority made for one test; `under` makes it an intermediate one."""

    def __init__(self, name: str, under: "Authority | None" = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = under or self
        builder = _certificate(self.name, issuer.name, self.key).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = builder.sign(issuer.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The CA's certificate."""
        return self.certificate.public_bytes(Encoding.PEM)

    def write(self, path: Path) -> str:
        """The CA's certificate as a file, put there by a rename."""
        write_atomically(path, self.pem, 0o644)
        return str(path)

    def make(
        self,
        common_name: str,
        organization: str = "",
        *,
        days: float = 1,
        server: bool = False,
        key: Key | None = None,
    ) -> tuple[x509.Certificate, Key]:
        """A leaf and its key."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _certificate(x509.Name(attributes), self.name, key, days).add_extension(
            x509.ExtendedKeyUsage([usage]), False
        )
        if server:
            names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
            builder = builder.add_extension(names, False)
        return builder.sign(self.key, hashes.SHA256()), key

    def issue(self, path: Path, common_name: str, organization: str = "", **more: Any) -> Path:
        """A leaf as files: `<path>.crt` and `<path>.key`."""
        certificate, key = self.make(common_name, organization, **more)
        path.with_suffix(".crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        path.with_suffix(".key").write_bytes(key_pem(key))
        return path


def key_pem(key: Key, password: bytes = b"") -> bytes:
    """The key as PKCS#8."""
    encryption: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def _certificate(subject: x509.Name, issuer: x509.Name, key: Key, days: float = 1) -> x509.CertificateBuilder:
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
        (directory / "root" / "pod-resources").mkdir(parents=True)  # bootstrap makes it
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

    def renew(self, common_name: str) -> None:
        """Replace the serving pair, one file after the other, each by a rename."""
        certificate, key = self.serving_ca.make(common_name, server=True)
        write_atomically(self.serving.with_suffix(".crt"), certificate.public_bytes(Encoding.PEM), 0o644)
        write_atomically(self.serving.with_suffix(".key"), key_pem(key), 0o600)


class Connection:
    """One connection of a client that never opens a second; requests go over it one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, server: Running, context: ssl.SSLContext) -> "Connection":
        """Connect. Raises ssl.SSLError, ConnectionError."""
        return cls(*await asyncio.open_connection("127.0.0.1", server.config.port, ssl=context))

    @property
    def shown(self) -> str:
        """Common name of the certificate the server showed."""
        subject = dict(pair[0] for pair in self._writer.get_extra_info("peercert")["subject"])
        return str(subject["commonName"])

    async def status(self, path: str = "/pods") -> int:
        """Status of a GET whose body is read to its end. Raises IncompleteReadError when the connection was cut."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with asyncio.timeout(WAIT_SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(": ") for line in head.decode().split("\r\n")[1:] if line)
            await self._reader.readexactly(int(fields["content-length"]))
        return int(head.split()[1])

    async def end(self) -> None:
        """Wait until the server closes it, sooner than for idleness. Raises AssertionError when it sends anything."""
        async with asyncio.timeout(MAX_IDLE_SECONDS / 2):
            with contextlib.suppress(ConnectionError):
                assert await self._reader.read() == b""

    async def close(self) -> None:
        """Close it."""
        self._writer.close()
        await self._writer.wait_closed()


async def served_name(site: Site, server: Running) -> str:
    """Common name of the certificate that a new connection is shown."""
    connection = await Connection.open(server, site.client()["ssl"])
    await connection.close()
    return connection.shown


async def until_served(site: Site, server: Running, name: str, within: float = WAIT_SECONDS) -> None:
    """Connect again until this certificate is shown."""
    async with asyncio.timeout(within):
        while True:
            with contextlib.suppress(ssl.SSLError):  # no certificate yet
                if await served_name(site, server) == name:
                    return
            await asyncio.sleep(0)


async def until_accepted(site: Site, server: Running, pair: Path) -> Connection:
    """Connect again until a request with this client certificate is answered by 200. Return the connection."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            connection = await Connection.open(server, site.client(pair, ssl.TLSVersion.TLSv1_3)["ssl"])
            with contextlib.suppress(ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
                if await connection.status() == 200:
                    return connection


async def handshake(server: Running, context: ssl.SSLContext) -> str:
    """ "" when a handshake succeeds, else OpenSSL's reason; a refusal that comes late (TLS 1.3) counts."""
    return await asyncio.to_thread(_handshake, server.config.port, context)


def _handshake(port: int, context: ssl.SSLContext) -> str:
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as tls,
        ):
            tls.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            tls.recv(1)
    except ssl.SSLError as error:
        return error.reason or str(error)
    return ""


async def run(*command: str) -> tuple[int, str]:
    """Return the exit code of a command, whose input is empty, and what it printed to both of its outputs."""
    require_command(command[0])
    # Its input is no pipe: uvloop raises RuntimeError where a program ends before the pipe to it is closed.
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode(errors="replace")


async def s_client(server: Running, *options: str) -> tuple[int, str]:
    """Exit code and output of an `openssl s_client` that connects to the main listener."""
    address = f"127.0.0.1:{server.config.port}"
    return await run("openssl", "s_client", "-connect", address, *options)
