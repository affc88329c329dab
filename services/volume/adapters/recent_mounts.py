"""The shares of the mounts of this node, from a mount table that is at most a second old.

Reading the table asks no file system. A mount that is too new for it counts as part of the one it is mounted in.
"""

import contextlib

from services.volume.adapters.mounts import mount_table
from services.volume.core.mount_shares import MountShares, Share
from shared.time.clock import Clock

_OLDEST = 1.0  # seconds; a table of thousands of lines is not read for each volume of a pod


class RecentMounts:
    """Reads the table when a share is requested and the last table is too old; where that fails, the last one is
    used."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._shares, self._read_at = clock, MountShares(), float("-inf")

    def share(self, path: str) -> Share:
        """Return the mount of a path, by the text of the path, and how many calls it may have."""
        if (now := self._clock.monotonic()) - self._read_at >= _OLDEST:
            with contextlib.suppress(OSError):
                self._shares = MountShares(mount_table())
            self._read_at = now
        return self._shares.of(path)
