"""Follows the kernel's log, /dev/kmsg, and keeps the number of the newest record that was handled."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from shared.files.atomic import write_atomically
from shared.host.boot_id import boot_id

KMSG = "/dev/kmsg"
_MAX_RECORD_BYTES = 8192  # the kernel writes no longer ones


def open_kernel_log() -> int:
    """Return a descriptor of which each read returns one record. Raises OSError."""
    return os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class KernelLog:
    """Calls `take(number, text)` in the event loop for each record that is newer than the one of `mark`.
    `mark`: a file that outlives the process but not the boot. `descriptor`: as `open_kernel_log` returns it.
    """

    def __init__(self, mark: Path, take: Callable[[int, str], None], descriptor: int) -> None:
        self._mark, self._take, self._descriptor = mark, take, descriptor
        self._after = self._read_mark()

    def start(self) -> None:
        """Take records from now on, beginning with those in the kernel's buffer."""
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def close(self) -> None:
        """Take no more records, and close the descriptor."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)

    def keep(self, number: int) -> None:
        """Save that this record was handled."""
        with contextlib.suppress(OSError):  # the next process then takes the record again
            write_atomically(self._mark, f"{boot_id()} {number}\n".encode(), 0o600)

    def _read(self) -> None:
        try:
            record = os.read(self._descriptor, _MAX_RECORD_BYTES)
        except BlockingIOError:
            return
        # The kernel has overwritten the next records; the next read returns the oldest one left.
        except BrokenPipeError:
            return
        head, _, text = record.partition(b";")
        fields = head.split(b",")
        if len(fields) < 2 or not fields[1].isdigit():
            return
        number = int(fields[1])
        if number > self._after:
            self._take(number, text.partition(b"\n")[0].decode(errors="replace"))

    def _read_mark(self) -> int:
        try:
            boot, _, number = self._mark.read_text().partition(" ")
            return int(number) if boot == boot_id() else -1
        except (OSError, ValueError):
            return -1
