"""Returns the shares of the mounts of this node, from a mount table that is at most a second old.

Reading the table calls no file system. A mount that is newer than the table counts as part of the one above it.
"""

import contextlib

from services.volume.adapters.mounts import mount_table
from services.volume.core.operations.mount_shares import MountShares, Share
from shared.time.clock import Clock

_MAX_AGE_SECONDS = 1.0  # so that a table of thousands of lines is not read for each volume of a pod


class RecentMounts:
    """Reads the mount table when a share is requested and the last table is too old. Where it cannot be read, the last
    one is used."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._shares, self._read_at = clock, MountShares(), float("-inf")

    def share(self, path: str) -> Share:
        """Return the mount that a path is on, by the text of the path, and how many calls may be under way on it."""
        if (now := self._clock.monotonic()) - self._read_at >= _MAX_AGE_SECONDS:
            with contextlib.suppress(OSError):
                self._shares = MountShares(mount_table())
            self._read_at = now
        return self._shares.share_of(path)
