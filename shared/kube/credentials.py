"""Describes how to reach the API server and as whom: what bootstrap resolved from the kubeconfig, and what clients
load.

bootstrap alone writes `<run dir>/credentials/` (0700): `credentials.json` (0600, atomic) names the other files there.
Those are never rewritten; new content gets new names, so that the files of one Credentials fit together.
Nothing in a Credentials but the proxy's URL may be secret; the secrets are in the files it names.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, to_builtins

from shared.errors import OperatorError
from shared.model.frozen_copy import replace

DIRECTORY = "credentials"
FILE_NAME = "credentials.json"
_FORMAT = 1


class Credentials(Struct, frozen=True, kw_only=True):
    """One set of credentials. Paths are absolute, "" = there is none. `version` grows with every change."""

    version: int
    server: str  # https://host[:port][/prefix], without a final /
    ca_file: str = ""  # PEM; "" = the machine's own authorities
    client_certificate_file: str = ""  # PEM
    client_key_file: str = ""  # PEM
    token_file: str = ""  # the bearer token and nothing else
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""  # "" = the host of `server`
    proxy_url: str = ""  # http(s)://; may hold a password. "" = that of the environment

    def __repr__(self) -> str:
        return f"Credentials(version={self.version}, server={self.server!r}, …)"


FileMark = tuple[int, int, int]  # device-unique inode, nanoseconds, bytes: another one = another file


def credentials_path(run_dir: str | Path) -> Path:
    """Return the path of credentials.json."""
    return Path(run_dir) / DIRECTORY / FILE_NAME


def mark_of(path: Path) -> FileMark | None:
    """Return a value that is equal while the file was not replaced; None where it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def load_credentials(run_dir: str | Path) -> Credentials:
    """Return the credentials in force.

    Raises FileNotFoundError before bootstrap wrote them, OperatorError when they cannot be used.
    """
    path = credentials_path(run_dir)
    try:
        return decode_credentials(path.read_bytes(), path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OperatorError(f"cannot be read: {error.strerror}", where=str(path), remedy="restart bootstrap") from error


def encode_credentials(credentials: Credentials) -> bytes:
    """Return the content of credentials.json; file names are relative to its directory."""
    fields = to_builtins(credentials)
    for name in _FILES:
        fields[name] = Path(fields[name]).name
    return json.dumps({"format": _FORMAT, "credentials": fields}, indent=1, sort_keys=True).encode()


def decode_credentials(content: bytes, path: Path) -> Credentials:
    """Read the output of `encode_credentials`. Raises OperatorError, naming `path`, when it cannot be used."""
    try:
        envelope: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
        if envelope.get("format") != _FORMAT:
            raise ValueError(f"format {envelope.get('format')}, not {_FORMAT}")
        found = msgspec.convert(envelope["credentials"], Credentials)
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        remedy = "restart bootstrap; it writes the file again"
        raise OperatorError(f"cannot be used: {error}", where=str(path), remedy=remedy) from error
    files = {name: str(path.parent / value) for name in _FILES if (value := getattr(found, name))}
    return replace(found, **files)  # type: ignore[arg-type]  # the fields named in _FILES are all str


_FILES = ("ca_file", "client_certificate_file", "client_key_file", "token_file")
