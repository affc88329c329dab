"""A request that waits for its answer, with its key: what a killed bootstrap needs to take the certificate up.

One file in the run directory, 0600, written before the request is sent and removed once its certificate is stored.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from services.bootstrap.core.certificate_template import Template
from shared.files.atomic import write_atomically


@dataclass(frozen=True, kw_only=True)
class PendingRequest:
    """Secret. `uid` and `version` are "" until the API server has confirmed the request."""

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
        """The same once the API server has it."""
        return replace(self, uid=uid, version=version)


class PendingFile:
    """At most one pending request."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        """Whether there is a file at all."""
        return self._path.exists()

    def read(self) -> PendingRequest | None:
        """What is pending; None where nothing is, or nothing that can be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=PendingRequest)
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, pending: PendingRequest) -> None:
        """Raises OSError."""
        write_atomically(self._path, json.dumps(asdict(pending)).encode(), 0o600)

    def remove(self) -> None:
        """Nothing is pending. Raises OSError."""
        self._path.unlink(missing_ok=True)
