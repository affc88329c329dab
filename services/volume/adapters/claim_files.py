"""Reads and writes the record of resource claims. Its calls block."""

from pathlib import Path
from typing import Any

import orjson

from services.volume.core.resource_claims.claim import Claim
from services.volume.core.resource_claims.claim_record import read_record, written_record
from shared.files.atomic import remove_unfinished, write_atomically
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
