"""Writes the certificates and kubeconfigs of a test's control plane: a new authority for each, in one directory."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM


def _name(common_name: str, organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    """Issues certificates below `directory`: `<name>.crt` and `<name>.key`, PEM."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.certificate_file, self.key_file = directory / "ca.crt", directory / "ca.key"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name("test-authority")
        builder = self._builder(self._subject, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._write(self.certificate_file, self.key_file, builder, self._key)

    def issue(
        self, name: str, common_name: str, organization: str = "", *, serving: Sequence[str] = ()
    ) -> tuple[Path, Path]:
        """Issue a client certificate, or a serving one for these host names and addresses; return (certificate,
        key)."""
        certificate, key_file = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if serving else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(_name(common_name, organization), key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if serving:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in serving]), False)
        self._write(certificate, key_file, builder, key)
        return certificate, key_file

    def signing_key(self, name: str) -> tuple[Path, Path]:
        """Write an RSA pair for service account tokens; return (public, private)."""
        key = rsa.generate_private_key(65537, 2048)
        public, private = self.directory / f"{name}.pub", self.directory / f"{name}.key"
        public.write_bytes(key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
        _write_key(private, key)
        return public, private

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
        )

    def _write(
        self, certificate: Path, key_file: Path, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
    ) -> None:
        certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        _write_key(key_file, key)


def write_kubeconfig(path: Path, server: str, authority: Path, user: dict[str, str]) -> Path:
    """Write a kubeconfig with one context; `user` holds the fields of a kubeconfig's user."""
    cluster = {"server": server, "certificate-authority": str(authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.touch(0o600)
    path.write_text(yaml.safe_dump(document))
    return path


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(0o600)
    path.write_bytes(
        key.private_bytes(_PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
