"""Reads and writes the checkpoint files of the CPU, memory and device managers, below the root directory (node.md
4.14)."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from services.podsync.core.checkpoints import cpu_state, device_state, memory_state
from services.podsync.core.checkpoints.cpu_state import CpuState, read_cpu_state, write_cpu_state
from services.podsync.core.checkpoints.device_state import DeviceState, read_device_state, write_device_state
from services.podsync.core.checkpoints.memory_state import MemoryState, read_memory_state, write_memory_state
from services.podsync.core.checkpoints.start_checks import start_error
from shared.errors import OperatorError
from shared.files.atomic import write_atomically
from shared.files.regular_file import read_regular_file
from shared.go_checkpoints.checksums import MAX_CHECKPOINT_BYTES, CheckpointError

log = logging.getLogger(__name__)

DEVICE_PLUGINS = "device-plugins"  # the directory of the device manager's file, below the root directory
_State = TypeVar("_State")


class PlacementFiles:
    """Reads and writes the three files. Each is written only where its content changed since it was last read or
    written."""

    def __init__(self, root_dir: Path) -> None:
        self.cpu_path = root_dir / cpu_state.FILE_NAME
        self.memory_path = root_dir / memory_state.FILE_NAME
        self.device_path = root_dir / DEVICE_PLUGINS / device_state.FILE_NAME
        self._written: dict[Path, bytes] = {}

    def read_cpu(self) -> CpuState | None:
        """Return the content of the CPU manager's file, None without one. Raises OperatorError for an unusable one."""
        return self._read(self.cpu_path, read_cpu_state, "CPU")

    def read_memory(self) -> MemoryState | None:
        """Return the content of the memory manager's file, None without one. Raises OperatorError likewise."""
        return self._read(self.memory_path, read_memory_state, "memory")

    def read_devices(self) -> DeviceState | None:
        """Return the content of the device manager's file, None without one. A file that cannot be used is logged
        and counts as none, as it does for the Go kubelet."""
        try:
            content = read_regular_file(self.device_path, MAX_CHECKPOINT_BYTES + 1)
            state = read_device_state(content)
        except FileNotFoundError:
            return None
        except (OSError, CheckpointError) as error:
            remedy = "pods of another kubelet lose their devices: drain this node and remove the file"
            log.warning("%s: cannot be used: %s (%s)", self.device_path, error, remedy)
            return None
        self._written[self.device_path] = content
        return state

    def write_cpu(self, state: CpuState) -> None:
        """Write the CPU manager's file. Raises OSError; the old file then stays, and the next call tries again."""
        self._write(self.cpu_path, write_cpu_state(state))

    def write_memory(self, state: MemoryState) -> None:
        """Write the memory manager's file. Raises OSError likewise."""
        self._write(self.memory_path, write_memory_state(state))

    def write_devices(self, state: DeviceState) -> None:
        """Write the device manager's file, unless it would name no resource and no file was read or written before.
        Raises OSError likewise."""
        if state.allocated or state.registered or self.device_path in self._written:
            self._write(self.device_path, write_device_state(state))

    def _read(self, path: Path, parse: Callable[[bytes], _State], manager: str) -> _State | None:
        try:
            content = read_regular_file(path, MAX_CHECKPOINT_BYTES + 1)
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
