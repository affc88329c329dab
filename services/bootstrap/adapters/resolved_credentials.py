"""Defines resolved credentials and checks them; only the child process imports `cryptography`."""

import os
import stat
from datetime import UTC, datetime

from msgspec import Struct

_MAX_FILE_BYTES = 2**19  # of a kubeconfig, or of a file that it names


class ResolvedCredentials(Struct, frozen=True, kw_only=True):
    """Resolved credentials; secret. PEM texts, "" = none."""

    server: str
    ca: str = ""
    certificate: str = ""
    key: str = ""
    token: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""

    def __repr__(self) -> str:
        return f"ResolvedCredentials(server={self.server!r}, …)"


class ProblemError(Exception):
    """A problem of the credentials. The text is one line: what (remedy)."""


class TemporaryProblemError(ProblemError):
    """A problem that may pass by itself: a plugin was run and returned no usable credentials."""


class ExpiredError(ProblemError):
    """The client certificate has ended."""


class TimeLimitError(Exception):
    """The time limit was reached (SIGALRM)."""


def file_text(path: str, key: str) -> str:
    """Return the text of a file that `key` of the kubeconfig names, "" = the kubeconfig itself. Raises ProblemError,
    from an OSError where the file cannot be opened."""
    named = f"{key}: {path} " if key else ""
    try:
        # Opened without blocking, because a pipe without a writer must not delay a start.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise ProblemError(f"{named}is a pipe (give the path of a file)")
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ProblemError(f"{named}is larger than {_MAX_FILE_BYTES >> 10} KiB (is it the right file?)")
        return content.decode("utf-8-sig")
    except OSError as error:
        remedy = "give the path of a readable file" if key else "give the path of a kubeconfig, or leave out the flag"
        raise ProblemError(f"{named}cannot be read: {error.strerror} ({remedy})") from error
    except UnicodeDecodeError:
        raise ProblemError(f"{named}is not text (PEM and YAML are)") from None


def check_material(material: ResolvedCredentials, by: str = "") -> float:
    """Check the credentials, and return the wall seconds at which the client certificate ends, 0 without one. Raises
    ProblemError, ExpiredError."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificates

    if material.token and not (material.token.isascii() and material.token.isprintable()):
        raise ProblemError(f"{by}the token holds characters that no token has (is it the right file?)")
    if material.ca:
        try:
            load_pem_x509_certificates(material.ca.encode())
        except ValueError:
            raise ProblemError(f"{by}certificate-authority holds no PEM certificate (put the CA's there)") from None
    if not material.certificate and not material.key:
        return 0.0
    try:
        leaf = load_pem_x509_certificates(material.certificate.encode())[0]
    except ValueError:
        raise ProblemError(f"{by}client-certificate holds no PEM certificate (replace it)") from None
    try:
        key = load_pem_private_key(material.key.encode(), password=None)
    except (ValueError, TypeError):
        raise ProblemError(f"{by}client-key holds no unencrypted PEM private key (replace it)") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if leaf.public_key().public_bytes(*form) != key.public_key().public_bytes(*form):
        raise ProblemError(f"{by}client-key is not the key of client-certificate (replace one of them)")
    ends = leaf.not_valid_after_utc
    if ends <= datetime.now(UTC):
        remedy = "renew it, and check this machine's clock"
        raise ExpiredError(f"{by}client-certificate has expired on {ends:%Y-%m-%d %H:%M:%S} UTC ({remedy})")
    return ends.timestamp()


def earliest_end(certificates: str) -> float:
    """Return the wall seconds at which the first of these PEM certificates ends, 0 without any. `check_material` must
    have checked them."""
    from cryptography.x509 import load_pem_x509_certificates

    if not certificates:
        return 0.0
    return min(one.not_valid_after_utc.timestamp() for one in load_pem_x509_certificates(certificates.encode()))
