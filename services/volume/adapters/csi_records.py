"""Reads and writes vol_data.json, which names what a teardown of a CSI volume needs (volumes.md 14.3); blocking."""

import errno
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import orjson

from shared.files.atomic import remove_unfinished, write_atomically

RECORD = "vol_data.json"
_MAX_RECORD_BYTES = 1 << 20


class CsiRecordError(OSError):
    """The record cannot be read or understood; the text names the file and what to do."""

    def __init__(self, path: Path, why: str) -> None:
        remedy = "unmount the volume by hand and remove its directory"
        super().__init__(errno.EBADMSG, f"kubernetes.io/csi: {path} cannot be read: {why}; {remedy}")


def save_record(directory: Path, record: Mapping[str, str]) -> None:
    """Write the record, unless it is there already with this content. A record that cannot be read is replaced. Raises
    OSError."""
    path, content = directory / RECORD, json.dumps(record).encode()
    with suppress(OSError):
        if _read(path, len(content)) == content:
            return
    write_atomically(path, content, 0o644)


def has_record(directory: Path) -> bool:
    """Return whether the directory contains a record, whatever its content is."""
    return os.path.lexists(directory / RECORD)


def load_record(directory: Path) -> dict[str, str] | None:
    """Return the record with `driverName` and `volumeHandle`; None = there is none. Raises CsiRecordError."""
    path = directory / RECORD
    try:
        content = _read(path, _MAX_RECORD_BYTES)
        record = orjson.loads(content) if len(content) <= _MAX_RECORD_BYTES else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CsiRecordError(path, (error.strerror or "").lower()) from None
    except ValueError:
        raise CsiRecordError(path, "it is no JSON") from None
    if not isinstance(record, dict) or not all(record.get(name) for name in ("driverName", "volumeHandle")):
        raise CsiRecordError(path, "it names no driver and volume")
    return {str(name): str(value) for name, value in record.items()}


def _read(path: Path, limit: int) -> bytes:
    """Return the first `limit` bytes and one more. A driver may put anything there: a FIFO, which would block the read
    forever, is an error. Raises OSError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        return file.read(limit + 1)


def remove_record(directory: Path) -> None:
    """Remove the record, and a temporary file that a kill left; an absent record is no error. Raises OSError."""
    remove_unfinished(directory / RECORD)
    (directory / RECORD).unlink(missing_ok=True)
