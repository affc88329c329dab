"""The file of `--lock-file`: held by the one agent of a machine, for as long as it runs (config.md 5.8)."""

import fcntl
import os

HELD = "BULKHEAD_LOCK_FILE_HELD"  # environment of the services: the lock file their supervisor holds already


def hold(path: str) -> int:
    """Wait for the exclusive lock; return the descriptor that holds it, not inherited. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except BaseException:
        os.close(fd)
        raise
    return fd
