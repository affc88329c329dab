"""Has the checksums of checkpoint files, and what is wrong with a file that cannot be used."""

from enum import StrEnum
from typing import Any

import orjson

from shared.podspec.hashing import fnv32a

MAX_CHECKPOINT_BYTES = 4 << 20  # a checksum takes a second for 8 MiB; a pod has some hundred bytes


class Fault(StrEnum):
    """Names what is wrong with a file."""

    NOT_JSON = "not JSON"  # truncated, empty or of another program
    WRONG_CHECKSUM = "wrong checksum"
    UNKNOWN_FORM = "unknown form"  # of another version, or with values that cannot be


class CheckpointError(Exception):
    """Says why a content is not used. `str()` is part of a line for the operator, without the file's path."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


def load_checkpoint(content: bytes) -> dict[str, Any]:
    """Return the JSON object in the file. Raises CheckpointError."""
    if len(content) > MAX_CHECKPOINT_BYTES:
        raise CheckpointError(Fault.UNKNOWN_FORM, f"the file is longer than {MAX_CHECKPOINT_BYTES >> 20} MiB")
    try:
        loaded = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        what = "is empty" if not content.strip() else f"is not JSON at line {error.lineno} column {error.colno}"
        raise CheckpointError(Fault.NOT_JSON, f"the file {what}") from None
    if not isinstance(loaded, dict):
        raise CheckpointError(Fault.UNKNOWN_FORM, "the file is not a JSON object")
    return loaded


def dump_checksum(dump: str) -> int:
    """Return the FNV-1a hash of 32 bits over a dump."""
    return fnv32a(dump.encode("utf-8", "surrogatepass"))


def text_checksum(text: str) -> int:
    """Return the checksum over a string field, such as the data of a version that has its content in one."""
    return dump_checksum(f"(string){text}")


def corrupted() -> CheckpointError:
    """Return the error of a content that its checksum does not cover."""
    return CheckpointError(Fault.WRONG_CHECKSUM, "checkpoint is corrupted: its checksum is not that of its content")
