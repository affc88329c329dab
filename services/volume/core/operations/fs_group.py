"""Decides how a volume is given to the pod's fsGroup: the modes of its entries, whether it was given before, and when a
slow change is reported (volumes.md 11). Touches no file.
"""

import stat

from services.volume.core.operations.outcome import PluginEvent

SLOW_AFTER_SECONDS = 30.0
REPORT_SECONDS = 60.0  # between two reports of a slow change
_GROUP_MODE = stat.S_ISGID | 0o770  # the bits of a directory that was given to a group
_ADVICE = (
    "consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"
    "#configure-volume-permission-and-ownership-change-policy-for-pods"
)


def mode_for_group(mode: int, *, read_only: bool) -> int:
    """Return the permission bits of a file or directory with this `st_mode` after it was given to a group."""
    bits = 0o440 if read_only else 0o660
    if stat.S_ISDIR(mode):
        bits |= stat.S_ISGID | 0o110
    return stat.S_IMODE(mode) | bits


def was_given(mode: int, owner: int, group: int) -> bool:
    """Return whether the root of a volume, by its `st_mode` and `st_gid`, shows that the volume was given to the group
    (fsGroupChangePolicy OnRootMismatch)."""
    return owner == group and stat.S_ISDIR(mode) and mode & _GROUP_MODE == _GROUP_MODE


class SlowChange:
    """Decides when a change of a volume's ownership is reported as an event of its pod: after half a minute, then each
    minute. `volume`: its path; `now`: monotonic seconds at which the change begins."""

    def __init__(self, uid: str, volume: str, now: float) -> None:
        self._uid = uid
        self._shown = volume[max(0, volume.find(uid)) :] if uid else volume
        self._entries, self._next, self._is_reported = 0, now + SLOW_AFTER_SECONDS, False

    def visit(self, now: float) -> PluginEvent | None:
        """Count one more file, directory or link that was changed. Return the event that is due."""
        self._entries += 1
        if now < self._next:
            return None
        self._next = now + REPORT_SECONDS
        text = f"Setting volume ownership for {self._shown}"
        text += (
            f", processed {self._entries} files."
            if self._is_reported
            else f" is taking longer than expected, {_ADVICE}"
        )
        self._is_reported = True
        return PluginEvent("VolumePermissionChangeInProgress", text, uid=self._uid)
