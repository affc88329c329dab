"""Finds out whether the content of memory volumes may be swapped to disk: reads the machine's swap areas, and asks the
kernel for the option noswap of tmpfs (node.md 4.13). It mounts nothing."""

import ctypes
import errno
import os
from pathlib import Path

_FSOPEN, _FSCONFIG = 430, 431  # system calls, the same numbers on every architecture
_SET_FLAG = 0
_FSOPEN_CLOEXEC = 1

_libc = ctypes.CDLL(None, use_errno=True)


def memory_may_be_on_disk(swaps: Path = Path("/proc/swaps")) -> bool:
    """Return whether the machine uses swap and the kernel cannot keep a tmpfs out of it. False where that is not
    known."""
    try:
        lines = [line for line in swaps.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return False
    return len(lines) > 1 and tmpfs_accepts("noswap") is False  # the first line is the heading


def tmpfs_accepts(option: str) -> bool | None:
    """Return whether the kernel has this option of tmpfs, such as `noswap`; None where we may not ask the kernel."""
    filesystem = _libc.syscall(_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC)
    if filesystem < 0:  # a kernel before 5.2 has neither the call nor the option
        return False if ctypes.get_errno() == errno.ENOSYS else None
    try:
        return bool(_libc.syscall(_FSCONFIG, filesystem, _SET_FLAG, option.encode(), None, 0) == 0)
    finally:
        os.close(filesystem)
