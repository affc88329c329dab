"""Makes or checks the serving certificate, and checks the client CA, in a short-lived child that imports
`cryptography`.

Rules: config.md 5.2. A readable pair is used as it is, even when expired or made for another host; half a pair is
refused. A pair is made only where both files are absent, and only for the self-signed names. Key material never leaves
the two files.
"""

import ipaddress
import json
import secrets
import subprocess
import sys
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, convert, to_builtins

from shared.files.atomic import sync_directory, write_atomically

if TYPE_CHECKING:  # what the child does not need
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from shared.config.effective import EffectiveConfig

_TIMEOUT_SECONDS = 120.0  # RSA keys take long on a busy machine


class PairRequest(Struct, frozen=True, kw_only=True):
    """The pair to check. A file name "" = there is no pair; `self_signed`: the agent makes this pair where it is
    absent; `checks_only`: nothing is written, and a pair that would be made may be absent."""

    certificate_file: str
    private_key_file: str
    self_signed: bool
    host_name: str
    client_ca_file: str
    checks_only: bool = False


class FileVersion(Struct, frozen=True):
    """Identifies the content of a file by its inode and by when it was last touched, in nanoseconds of the clock of
    file times."""

    path: str
    inode: int
    changed_ns: int


class PairReport(Struct, frozen=True, kw_only=True):
    """The result of a check: problems (one line each), or the pair's facts. `not_after`: RFC3339, "" = there is no
    pair; `remarks`: for the log; `made`: the version of each file of a pair that was made, from before it was read."""

    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    not_after: str = ""
    made: tuple[FileVersion, ...] = ()

    @property
    def created(self) -> bool:
        """Return whether the pair was made."""
        return bool(self.made)

    def is_still_made(self, file: Path) -> bool:
        """Return whether the file is the one that was made, and has not been touched since."""
        return _version(file) in self.made


def is_self_signed(config: "EffectiveConfig") -> bool:
    """Return whether the agent makes the serving pair of this configuration itself."""
    return config.tls_cert_file == f"{config.cert_dir}/kubelet.crt" and not config.server_tls_bootstrap


def pair_request(config: "EffectiveConfig", *, checks_only: bool = False) -> PairRequest:
    """Return the request for the files of this configuration. CertificateKeeper handles pairs of the API server."""
    asked_for = config.server_tls_bootstrap
    return PairRequest(
        certificate_file="" if asked_for else config.tls_cert_file,
        private_key_file="" if asked_for else config.tls_private_key_file,
        self_signed=is_self_signed(config),
        host_name=config.node_name,
        client_ca_file=config.client_ca_file,
        checks_only=checks_only,
    )


def ensure_pair_in_child(request: PairRequest) -> PairReport:
    """Check or make the pair in a child process, so that `cryptography` stays out of this one."""
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(to_builtins(request)),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return PairReport(problems=(f"tlsCertFile: the certificate check failed: {error} (is the disk full?)",))
    return convert(answer, PairReport)


def ensure_pair(request: PairRequest) -> PairReport:
    """Check or make the pair, check the client CA."""
    problems = []
    if request.client_ca_file and (problem := _check_client_ca(request.client_ca_file)):
        problems.append(problem)
    if not request.certificate_file or not request.private_key_file:
        return PairReport(problems=tuple(problems))
    certificate, key = Path(request.certificate_file), Path(request.private_key_file)
    made: tuple[FileVersion, ...] = ()
    try:
        if request.self_signed and request.checks_only:
            if _will_be_made(certificate, key):
                return PairReport(problems=tuple(problems))
        elif request.self_signed:
            _finish_creation(certificate, key)
            if not certificate.exists() and not key.exists():
                _create(certificate, key, request.host_name)
                made = tuple(version for file in (certificate, key) if (version := _version(file)) is not None)
        ends = _check(certificate, key, "remove both to have a pair made" if request.self_signed else "set neither")
        remarks = () if ends > datetime.now(UTC) else (f"{certificate} has expired on {ends:%F %T} UTC (renew it)",)
        not_after = f"{ends:%Y-%m-%dT%H:%M:%SZ}"
        return PairReport(problems=tuple(problems), remarks=remarks, not_after=not_after, made=made)
    except OSError as error:
        path = error.filename or certificate
        problems.append(f"tlsCertFile: {path}: {error.strerror} (make it readable, or remove both files of the pair)")
    except ValueError as error:
        problems.append(f"tlsCertFile: {error}")
    return PairReport(problems=tuple(problems))


def _check(certificate: Path, key: Path, way_out: str = "") -> datetime:
    """Check the pair, and return when it ends. Raises ValueError with one line, or OSError."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificates

    for here, other in ((certificate, key), (key, certificate)):
        if not here.exists():
            what = f"{here} is missing while {other} exists" if other.exists() else f"{here} does not exist"
            raise ValueError(f"{what} (put both files there, or {way_out})")
    try:
        leaf = load_pem_x509_certificates(certificate.read_bytes())[0]
    except ValueError:
        raise ValueError(f"{certificate} holds no PEM certificate (replace it, or {way_out})") from None
    try:
        private = load_pem_private_key(key.read_bytes(), password=None)
    except (ValueError, TypeError):
        raise ValueError(f"{key} holds no unencrypted PEM private key (replace it, or {way_out})") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if leaf.public_key().public_bytes(*form) != private.public_key().public_bytes(*form):
        raise ValueError(f"{key} is not the key of {certificate} (replace one of them, or {way_out})")
    return leaf.not_valid_after_utc


def _version(file: Path) -> FileVersion | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return FileVersion(str(file), found.st_ino, found.st_ctime_ns)


def _check_client_ca(file: str) -> str:
    from cryptography.x509 import load_pem_x509_certificates

    key = "authentication.x509.clientCAFile"
    try:
        load_pem_x509_certificates(Path(file).read_bytes())
    except OSError as error:
        return f"{key}: {file}: {error.strerror} (give the path of a readable PEM file)"
    except ValueError:
        return f"{key}: {file} holds no PEM certificate (put the CA's certificate there)"
    return ""


def _create(certificate: Path, key: Path, host_name: str) -> None:
    """Write a new pair. The order lets `_finish_creation` complete what a crash in between leaves."""
    for directory in (certificate.parent, key.parent):
        for missing in reversed([d for d in (directory, *directory.parents) if not d.exists()]):
            missing.mkdir(exist_ok=True)
            missing.chmod(0o755)
    certificate_pem, key_pem = make_self_signed(host_name, datetime.now(UTC))
    write_atomically(_pending(certificate), certificate_pem, 0o644)
    write_atomically(key, key_pem, 0o600)
    _pending(certificate).rename(certificate)
    sync_directory(certificate.parent)


def _pending(certificate: Path) -> Path:
    return certificate.with_name(f".{certificate.name}.pending")


def _will_be_made(certificate: Path, key: Path) -> bool:
    """Return whether a start makes this pair, or completes what a crash in `_create` left."""
    return not certificate.exists() and (not key.exists() or _pending(certificate).exists())


def _finish_creation(certificate: Path, key: Path) -> None:
    """Complete a `_create` that a crash interrupted: the certificate is used with its key, or both are made again."""
    pending = _pending(certificate)
    if not pending.exists():
        return
    if key.exists() and not certificate.exists():
        try:
            _check(pending, key)
        except ValueError:
            pending.unlink()
            return
        pending.rename(certificate)
        sync_directory(certificate.parent)
    else:
        pending.unlink()


def make_self_signed(host_name: str, now: datetime) -> tuple[bytes, bytes]:
    """Return PEM of leaf and CA, and of the leaf's key (PKCS#1), as config.md 5.2 specifies."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def name(text: str) -> x509.Name:
        with warnings.catch_warnings():  # Go sets no limit; a node name may be longer than X.520's 64 characters
            warnings.simplefilter("ignore")
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text, _validate=False)])

    def usage(*, signs_certificates: bool) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=True, key_encipherment=True, key_cert_sign=signs_certificates, crl_sign=False,
            content_commitment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip

    def begin(subject: x509.Name, issuer: x509.Name, key: "RSAPrivateKey") -> x509.CertificateBuilder:
        begins = now - timedelta(hours=1)
        return x509.CertificateBuilder(
            issuer_name=issuer, subject_name=subject, public_key=key.public_key(), not_valid_before=begins,
            not_valid_after=begins + timedelta(days=365), serial_number=secrets.randbelow(2**63 - 1) + 1,
        )  # fmt: skip

    seconds = int(now.timestamp())
    ca_key, leaf_key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    ca_name = name(f"{host_name}-ca@{seconds}")
    ca = (
        begin(ca_name, ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host_name))
    except ValueError:
        alternative = x509.DNSName(host_name)
    leaf = (
        begin(name(f"{host_name}@{seconds}"), ca_name, leaf_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key_pem = leaf_key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return leaf.public_bytes(Encoding.PEM) + ca.public_bytes(Encoding.PEM), key_pem


if __name__ == "__main__":
    print(json.dumps(to_builtins(ensure_pair(PairRequest(**json.load(sys.stdin))))))
