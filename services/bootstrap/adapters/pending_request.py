"""Stores a request that waits for its answer, with its key, so that a restarted bootstrap can use the certificate.

It is one file in the run directory, 0600, written before the request is sent and removed once its certificate is
stored.
"""

import json
from pathlib import Path

import msgspec
from msgspec import Struct, to_builtins

from services.bootstrap.core.certificate_template import Template
from shared.files.atomic import write_atomically
from shared.model.frozen_copy import replace


class PendingRequest(Struct, frozen=True, kw_only=True):
    """A request that waits for its answer; secret. `uid` and `version` are "" until the API server has confirmed it."""

    name: str
    template: Template
    request: str
    key: str
    encipherment: bool
    until: float  # wall seconds at which it is given up
    uid: str = ""
    version: str = ""

    def __repr__(self) -> str:
        return f"PendingRequest(name={self.name!r}, …)"

    def accepted(self, uid: str, version: str) -> "PendingRequest":
        """Return the request after the API server has confirmed it."""
        return replace(self, uid=uid, version=version)


class PendingFile:
    """The file of the only pending request."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        """Return whether the file exists, whatever its content is."""
        return self._path.exists()

    def read(self) -> PendingRequest | None:
        """Return the pending request; None = there is none, or it cannot be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=PendingRequest)
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, pending: PendingRequest) -> None:
        """Raises OSError."""
        write_atomically(self._path, json.dumps(to_builtins(pending)).encode(), 0o600)

    def remove(self) -> None:
        """Remove the file, because nothing is pending. Raises OSError."""
        self._path.unlink(missing_ok=True)
