"""Reads and writes the record of resource claims, and the Go kubelet's checkpoint of them. All calls block."""

from pathlib import Path
from typing import Any

import orjson

from services.volume.core.resource_claims.claim import Claim
from services.volume.core.resource_claims.claim_checkpoint import read_checkpoint, write_checkpoint
from services.volume.core.resource_claims.claim_record import read_record, written_record
from shared.files.atomic import remove_unfinished, write_atomically
from shared.files.regular_file import read_regular_file
from shared.go_checkpoints.checksums import MAX_CHECKPOINT_BYTES
from shared.host.boot_id import boot_id

_MAX_RECORD_BYTES = 64 << 20


class ClaimRecord:
    """Keeps the claims that drivers of this node have prepared in the record at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[Claim, ...]:
        """Return the claims; () without a record. Raises OSError, and ValueError for a damaged one."""
        try:
            with self.path.open("rb") as file:
                content = file.read(_MAX_RECORD_BYTES + 1)
        except FileNotFoundError:
            return ()
        if len(content) > _MAX_RECORD_BYTES:
            raise ValueError("it is too long")
        record: Any = orjson.loads(content)
        return read_record(record, boot_id())

    def save(self, claims: tuple[Claim, ...]) -> None:
        """Write the record in place of the one before. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_unfinished(self.path)
        write_atomically(self.path, orjson.dumps(written_record(claims, boot_id())))


class CheckpointFile:
    """Keeps the checkpoint at `path`. It is written only where its content has changed since it was last read or
    written, and made only once there is a claim."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content = b""  # "" = there is none, or none that can be used

    def load(self) -> tuple[Claim, ...]:
        """Return the claims; () without a checkpoint. Raises OSError, and CheckpointError for one that cannot be
        used, which stays until there is a claim."""
        try:
            content = read_regular_file(self.path, MAX_CHECKPOINT_BYTES + 1)
        except FileNotFoundError:
            return ()
        claims = read_checkpoint(content)
        self._content = content
        return claims

    @property
    def is_there(self) -> bool:
        """Return whether a checkpoint was read or written."""
        return bool(self._content)

    def save(self, claims: tuple[Claim, ...]) -> None:
        """Write the checkpoint of these claims. Raises OSError; the next call tries again."""
        content = write_checkpoint(claims)
        if content != self._content and (claims or self.is_there):
            write_atomically(self.path, content)
            self._content = content
