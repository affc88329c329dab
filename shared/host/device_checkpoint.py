"""Reads which resources the kubelet's device plugin checkpoint names (node.md 4.14). Never writes it.

The file may be an earlier kubelet's, whose plugins have not registered with this agent yet.
"""

import logging
import os
import stat
from pathlib import Path

import orjson

from shared.podspec.names import qualified_name
from shared.podspec.resources import is_extended

log = logging.getLogger(__name__)

CHECKPOINT = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")  # whatever the root directory is
_MAX_FILE_BYTES = 16 * 2**20  # an entry has some hundred
_MAX_RESOURCES = 256  # resources


class DeviceCheckpoint:
    """The resources, read again when the file was replaced."""

    def __init__(self, path: Path = CHECKPOINT) -> None:
        self._path = path
        self._mark: tuple[int, int, int] | None = None
        self._resources: frozenset[str] = frozenset()

    def exists(self) -> bool:
        """Return whether there is such a file, whatever it holds."""
        return os.path.lexists(self._path)

    def resources(self) -> frozenset[str]:
        """Return the names; none without a file. One that cannot be used is logged once, and what was read before
        counts.
        """
        try:
            found = self._path.stat()
        except OSError:
            self._mark, self._resources = None, frozenset()
            return self._resources
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        if mark != self._mark:
            self._mark = mark
            try:
                self._resources = _read(self._path)
            except (OSError, ValueError) as error:
                log.warning("%s: cannot be used: %s (remove it where no device plugin runs)", self._path, error)
        return self._resources


def _read(path: Path) -> frozenset[str]:
    """Read the names of the resources. Raises OSError, ValueError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"longer than {_MAX_FILE_BYTES >> 20} MiB")
    try:
        checkpoint = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise ValueError("not JSON") from None
    data = checkpoint.get("Data") if isinstance(checkpoint, dict) else None
    registered = data.get("RegisteredDevices") if isinstance(data, dict) else None
    if registered is None:
        return frozenset()
    if not isinstance(registered, dict) or len(registered) > _MAX_RESOURCES:
        raise ValueError("no checkpoint of a device manager")
    return frozenset(name for name in registered if is_extended(name) and not qualified_name(name))
