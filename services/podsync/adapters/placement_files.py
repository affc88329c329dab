"""Reads and writes the checkpoint files of the CPU and memory managers in the root directory (node.md 4.14)."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from services.podsync.core.checkpoints import cpu_state, memory_state
from services.podsync.core.checkpoints.checksums import MAX_CHECKPOINT_BYTES, CheckpointError
from services.podsync.core.checkpoints.cpu_state import CpuState, read_cpu_state, write_cpu_state
from services.podsync.core.checkpoints.memory_state import MemoryState, read_memory_state, write_memory_state
from services.podsync.core.checkpoints.start_checks import start_error
from shared.errors import OperatorError
from shared.files.atomic import write_atomically

_State = TypeVar("_State")


class PlacementFiles:
    """Reads and writes the two files. Each is written only where its content changed since it was last read or
    written."""

    def __init__(self, root_dir: Path) -> None:
        self.cpu_path = root_dir / cpu_state.FILE_NAME
        self.memory_path = root_dir / memory_state.FILE_NAME
        self._written: dict[Path, bytes] = {}

    def read_cpu(self) -> CpuState | None:
        """Return the content of the CPU manager's file, None without one. Raises OperatorError for an unusable one."""
        return self._read(self.cpu_path, read_cpu_state, "CPU")

    def read_memory(self) -> MemoryState | None:
        """Return the content of the memory manager's file, None without one. Raises OperatorError likewise."""
        return self._read(self.memory_path, read_memory_state, "memory")

    def write_cpu(self, state: CpuState) -> None:
        """Write the CPU manager's file. Raises OSError; the old file then stays, and the next call tries again."""
        self._write(self.cpu_path, write_cpu_state(state))

    def write_memory(self, state: MemoryState) -> None:
        """Write the memory manager's file. Raises OSError likewise."""
        self._write(self.memory_path, write_memory_state(state))

    def _read(self, path: Path, parse: Callable[[bytes], _State], manager: str) -> _State | None:
        try:
            content = _content(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            remedy = "drain this node and remove it, or correct its permissions"
            raise OperatorError(error.strerror or str(error), where=str(path), remedy=remedy) from None
        try:
            state = parse(content)
        except CheckpointError as error:
            raise start_error(error, manager, str(path)) from None
        self._written[path] = content
        return state

    def _write(self, path: Path, content: bytes) -> None:
        if self._written.get(path) == content:
            return
        self._written.pop(path, None)
        write_atomically(path, content)
        self._written[path] = content


def _content(path: Path) -> bytes:
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "is not a regular file")
        return file.read(MAX_CHECKPOINT_BYTES + 1)
