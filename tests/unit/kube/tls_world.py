"""An authority and its certificates, made once per test session: what TLS tests of the API client need."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass
class Pair:
    """PEM of a certificate and of its key."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates for tests; `under` makes it an intermediate one."""

    def __init__(self, name: str = "test-ca", under: "Authority | None" = None) -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        now, issuer = datetime.now(UTC), under or self
        self._certificate = (
            x509.CertificateBuilder(issuer._name, self._name, self._key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(issuer._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str, *, ends_in: float = 86400.0, organization: str = "") -> Pair:
        """A pair for `name` (and 127.0.0.1), valid from yesterday until `ends_in` seconds from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        now = datetime.now(UTC)
        names = [x509.DNSName("api.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            x509.CertificateBuilder(self._name, x509.Name(attributes), key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(seconds=ends_in))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Pair(certificate.public_bytes(Encoding.PEM), key.private_bytes(*form))


def write_pair(pair: Pair, directory: Path, stem: str) -> tuple[Path, Path]:
    """Write a pair as `<stem>.crt` and `<stem>.key`."""
    certificate, key = directory / f"{stem}.crt", directory / f"{stem}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return certificate, key
