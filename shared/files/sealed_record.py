"""One record that is encrypted on disk and bound to what it is about, for content that no other file may have in clear.

AES-256-GCM with a random nonce for each save. The key is derived (HKDF-SHA256) from a credential of systemd's unit,
which `systemd-creds` can seal with a TPM, else from a file that root alone can read and that is made once. The binding,
such as node and cluster, is in clear and authenticated: a record with another one is refused, as is one that is damaged
or was sealed with another key. Knows nothing of what the record means. The calls block.
"""

import base64
import binascii
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from shared.errors import OperatorError
from shared.files.atomic import sync_directory
from shared.files.checkpoint import Checkpoint
from shared.files.regular_file import read_regular_file
from shared.text.json_text import json_bytes
from shared.text.plain_text import plain

CREDENTIALS_DIRECTORY = "CREDENTIALS_DIRECTORY"  # environment variable, which systemd sets for a unit with credentials
KEY_FILE = "key"
MIN_KEY_BYTES = 32
MAX_KEY_BYTES = 4096
_NONCE_BYTES = 12
_CIPHER = "AES-256-GCM"


class RefusedRecordError(Exception):
    """Says why a record is not used: `str()` is one line, which has nothing of the record's content."""


def load_sealing_key(directory: Path, credential: str, environment: Mapping[str, str] = os.environ) -> bytes:
    """Return the secret that keys are derived from: the unit's `credential`, else the content of `key` in `directory`.
    That file is made where it is absent, and removed where there is a credential. Several processes may call this at
    once. Raises OperatorError and OSError."""
    if place := environment.get(CREDENTIALS_DIRECTORY, ""):
        path = Path(place) / credential
        if path.exists():
            secret = _checked(read_regular_file(path, MAX_KEY_BYTES), path)
            (directory / KEY_FILE).unlink(missing_ok=True)
            _remove_unfinished(directory)
            return secret
    path = directory / KEY_FILE
    if not path.exists():
        _make_key(path)
    _remove_unfinished(directory)
    found = path.stat()
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or found.st_uid != os.geteuid():
        raise OperatorError("others than root may read the key", where=str(path), remedy="chmod 0600, or remove it")
    return _checked(read_regular_file(path, MAX_KEY_BYTES), path)


def _checked(secret: bytes, path: Path) -> bytes:
    if len(secret) < MIN_KEY_BYTES:
        what = f"the key has {len(secret)} bytes, must have at least {MIN_KEY_BYTES}"
        raise OperatorError(what, where=str(path), remedy="replace it by random bytes")
    return secret


def _make_key(path: Path) -> None:
    """Make the file complete or not at all, once: where another process was first, its key stays."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            os.write(descriptor, secrets.token_bytes(MIN_KEY_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            path.hardlink_to(temporary)
        except (FileExistsError, FileNotFoundError):  # another process has made the key, and may have removed ours
            pass
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def _remove_unfinished(directory: Path) -> None:
    """Remove what a kill while the key was made has left, which may be the key. Other processes need it no more."""
    for left in directory.glob(f".{KEY_FILE}.*.tmp"):
        left.unlink(missing_ok=True)


class SealedRecord:
    """The record `name` below `directory`, with `fallback` for the time the disk is full. `secret`: of
    `load_sealing_key`; `max_bytes`: of a file that is read."""

    def __init__(self, directory: Path, fallback: Path, name: str, secret: bytes, max_bytes: int) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        self._records, self._name = Checkpoint(directory, fallback), name
        self._directories, self._max_bytes = (directory, fallback), max_bytes
        self._cipher = AESGCM(HKDF(SHA256(), 32, salt=None, info=f"bulkhead {name}".encode()).derive(secret))
        self._invalid: type[Exception] = InvalidTag

    @property
    def trouble(self) -> str | None:
        """Return one line while the disk cannot be written."""
        return self._records.trouble

    def load(self, binding: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the record that was saved with this binding; None = there is none. One that is too large is removed.
        Raises RefusedRecordError and OSError."""
        for path in (path for directory in self._directories for path in directory.glob("*.json")):
            if (size := path.stat().st_size) > self._max_bytes:
                path.unlink()
                raise RefusedRecordError(f"it had {size} bytes, more than {self._max_bytes}")
        found = self._records.load_all().get(self._name)
        if found is None:
            return None
        bound = found.get("binding")
        if bound != dict(binding):
            parts = sorted(bound.items()) if isinstance(bound, dict) else []
            other = plain(", ".join(f"{key} {value}" for key, value in parts)) or "nothing"
            raise RefusedRecordError(f"it is of {other}, and not of this node in this cluster")
        try:
            nonce, sealed = (base64.b64decode(found[key], validate=True) for key in ("nonce", "sealed"))
            content = orjson.loads(self._cipher.decrypt(nonce, sealed, json_bytes(bound, option=orjson.OPT_SORT_KEYS)))
        except self._invalid:
            raise RefusedRecordError("it is damaged, or was sealed with another key") from None
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise RefusedRecordError("it is damaged") from None
        if not isinstance(content, dict):
            raise RefusedRecordError("it is damaged")
        return content

    def save(self, data: Mapping[str, Any], binding: Mapping[str, str]) -> None:
        """Seal the record and store it in place of the earlier one. Raises OSError."""
        nonce, bound = secrets.token_bytes(_NONCE_BYTES), dict(binding)
        sealed = self._cipher.encrypt(nonce, json_bytes(data), json_bytes(bound, option=orjson.OPT_SORT_KEYS))
        texts = {key: base64.b64encode(value).decode() for key, value in (("nonce", nonce), ("sealed", sealed))}
        self._records.save(self._name, {"cipher": _CIPHER, "binding": bound, **texts})
