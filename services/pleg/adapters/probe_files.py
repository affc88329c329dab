"""Keeps the counts of each pod's probes in the run directory, one small file per pod, replaced atomically.

The run directory is a tmpfs: a write takes microseconds and is not synced, because after a reboot no count is valid.
Where a file cannot be written or read, the probes of that pod count from zero after a restart.
"""

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from services.pleg.core.probe_memory import ProbeMemory

log = logging.getLogger(__name__)

_SUFFIX = ".json"
MAX_BYTES = 256 * 1024  # of one file; a larger one is not ours


class ProbeFiles:
    """Keeps the files in `directory`, which the first write makes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._failing = False

    def load(self) -> dict[str, list[ProbeMemory]]:
        """Return the counts that an earlier process saved, by pod UID. Unreadable files are removed."""
        memories: dict[str, list[ProbeMemory]] = {}
        try:
            paths = list(self._directory.iterdir())
        except OSError:
            return memories
        for path in paths:
            try:
                if path.suffix != _SUFFIX or path.stat().st_size > MAX_BYTES:
                    raise ValueError("not a file of ours")
                memories[unquote(path.stem)] = msgspec.json.decode(path.read_bytes(), type=list[ProbeMemory])
            except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
                log.info("the counts of probes in %s are not used: %s", path, error)
                _remove(path)
        return memories

    def save(self, uid: str, memories: Iterable[ProbeMemory]) -> None:
        """Replace the pod's file. A failure is logged once and never raised."""
        path = self._path(uid)
        draft = path.with_suffix(".new")
        content = msgspec.json.encode(list(memories))
        try:
            try:
                _write(draft, content)
            except FileNotFoundError:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write(draft, content)
            draft.replace(path)
        except OSError as error:
            if not self._failing:
                log.warning("what probes counted is not kept over a restart of pleg: %s: %s", path, error.strerror)
            self._failing = True
            _remove(draft)
            _remove(path)  # an outdated count could cause a restart too early
        else:
            self._failing = False

    def forget(self, uid: str) -> None:
        """Remove the file of a pod that is no longer probed."""
        _remove(self._path(uid))

    def _path(self, uid: str) -> Path:
        return self._directory / f"{quote(uid, safe='')}{_SUFFIX}"


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(descriptor, content) != len(content):
            raise OSError(28, "No space left on device")
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.debug("%s stays: %s", path, error)
