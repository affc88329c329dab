"""Keeps the record of a takeover on disk, and the lock that only one command can hold."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Struct, field

from services.cli.takeover.plan import Intent, Step
from shared.errors import OperatorError
from shared.files.atomic import remove_unfinished, sync_directory, write_atomically

_MAX_RECORD_BYTES = 8 << 20  # of a record that are read


class SeenContainer(Struct, frozen=True, kw_only=True):
    """A container that ran before the switch."""

    id: str
    name: str
    pod: str  # namespace/name


class Record(Struct, frozen=True, kw_only=True):
    """The record of a takeover. `step`: the step that was next when the record was saved. `done`: the intent is
    reached, which only a takeover keeps. `words`: those of the unit's own ExecStart=; `words[0]` is its program.
    `reason`: why it is rolled back."""

    intent: Intent
    step: Step
    words: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    containers: tuple[SeenContainer, ...] = ()
    done: bool = False
    reason: str = ""
    version: int = field(default=1)


class RecordFile:
    """The record's file below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / "takeover.json"

    def load(self) -> Record | None:
        """Return the record; None = there is none. Raises OperatorError for one that cannot be read."""
        try:
            with self.path.open("rb") as file:
                return msgspec.json.decode(file.read(_MAX_RECORD_BYTES), type=Record)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OperatorError(f"cannot be read: {error.strerror}", where=str(self.path)) from error
        except (ValueError, RecursionError) as error:  # msgspec raises a ValueError, as does text that is not UTF-8
            remedy = f"remove it and {self.path.parent.name}'s drop-in, if any"
            raise OperatorError(f"is damaged: {error}", where=str(self.path), remedy=remedy) from error

    def save(self, record: Record) -> None:
        """Replace the record. Raises OSError; the earlier one then stays."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        write_atomically(self.path, msgspec.json.encode(record))

    def remove(self) -> None:
        """Remove the record, and what a killed command left of it."""
        self.path.unlink(missing_ok=True)
        if self._directory.exists():
            remove_unfinished(self.path)
            sync_directory(self._directory)


@contextmanager
def hold_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of this machine in the block. When a process is killed, the kernel releases its lock. Raises
    OperatorError where another command holds it, and OSError."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o755)
    path = directory / "takeover.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            named = f" (process {holder})" if holder.isdigit() else ""
            raise OperatorError(
                f"another takeover or give-back is in progress{named}", remedy="wait for its end"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
