"""Writes the files of a volume so that a reader sees all the old ones or all the new ones (volumes.md 9); blocking.

The files are in a directory whose name begins with `..`; `..data` is a symlink to it, and each file's first component a
symlink into `..data`. The symlinks of new files are made before `..data` is changed: until then they are dangling, from
then on they lead to the new content, so that all new files appear at once. A kill at any point leaves `..data` old or
new; what else it leaves is found by its name and removed by the next run.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from services.volume.core.payload import Payload
from services.volume.core.payload_paths import checked, stale_links, top_components
from shared.crash import crash_point

DATA = "..data"
_NEW_DATA = "..data_tmp"
_GENERATION = re.compile(r"\.\.\d{4}(_\d\d){5}\.\d+")
_DIRECTORY_MODE = 0o755


class AtomicWriter:
    """One volume. `give` sets the ownership of the volume's directory and all below before the new files are shown.

    A reader that is stopped between the resolution of `..data` and its open, for longer than an update takes, finds the
    old directory removed, as with the kubelet; its next open succeeds."""

    def __init__(self, volume: Path, give: Callable[[Path], None] | None = None) -> None:
        self._volume, self._give = volume, give

    @property
    def current(self) -> Path | None:
        """The directory that is shown; None = none, or it is missing."""
        try:
            name = str((self._volume / DATA).readlink())
        except OSError:
            return None
        directory = self._volume / name
        return directory if _GENERATION.fullmatch(name) and directory.is_dir() else None

    def write(self, payload: Payload, *, wall: float) -> bool:
        """Show these files and no others; return whether anything was written. `wall`: seconds since the epoch.

        Raises ContentError (a path), and OSError: then the old files are still shown.
        """
        payload, old = checked(payload), self.current
        self._clear(keep=old)
        written = old is None or not _same(old, payload)
        if written:
            new = self._make_generation(wall)
            try:
                self._fill(new, payload)
                if self._give is not None:
                    self._give(self._volume)
                crash_point("volume.writer.ownership")
                self._link(top_components(payload))
                crash_point("volume.writer.links")
                (self._volume / _NEW_DATA).symlink_to(new.name)
                crash_point("volume.writer.data_link")
                (self._volume / _NEW_DATA).rename(self._volume / DATA)
            except OSError:
                self._clear(keep=old)
                raise
            crash_point("volume.writer.rename")
            old = new
        self._link(top_components(payload))
        for name in stale_links(self._links(), payload):
            (self._volume / name).unlink()
        crash_point("volume.writer.stale_links")
        self._clear(keep=old)
        crash_point("volume.writer.old_directory")
        return written

    def _make_generation(self, wall: float) -> Path:
        stamp = f"{datetime.fromtimestamp(wall, UTC):%Y_%m_%d_%H_%M_%S}"
        new = self._volume / f"..{stamp}.{secrets.randbelow(10**9):09d}{secrets.randbelow(10)}"
        new.mkdir(mode=_DIRECTORY_MODE)
        new.chmod(_DIRECTORY_MODE)
        crash_point("volume.writer.directory")
        return new

    def _fill(self, new: Path, payload: Payload) -> None:
        for path, file in sorted(payload.items()):
            target = new
            *directories, name = path.split("/")
            for directory in directories:
                target /= directory
                if not target.is_dir():
                    target.mkdir()
                    target.chmod(_DIRECTORY_MODE)
            descriptor = os.open(
                target / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(file.content)
                opened.flush()
                os.fchmod(descriptor, file.mode & 0o777)
                if file.owner is not None:
                    os.fchown(descriptor, file.owner, -1)
            crash_point("volume.writer.files")

    def _link(self, names: set[str]) -> None:
        for name in sorted(names):
            link, target = self._volume / name, f"{DATA}/{name}"
            if link.is_symlink():
                if str(link.readlink()) == target:
                    continue
                link.unlink()
            link.symlink_to(target)

    def _links(self) -> list[str]:
        """The symlinks at the top that lead into `..data`."""
        with os.scandir(self._volume) as entries:
            links = [entry.name for entry in entries if entry.is_symlink()]
        return [name for name in links if str((self._volume / name).readlink()) == f"{DATA}/{name}"]

    def _clear(self, keep: Path | None) -> None:
        """Remove what a killed run left: directories that are not shown, a symlink that was not renamed."""
        (self._volume / _NEW_DATA).unlink(missing_ok=True)
        with os.scandir(self._volume) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in names:
            if _GENERATION.fullmatch(name) and (keep is None or name != keep.name):
                shutil.rmtree(self._volume / name)


def _same(shown: Path, payload: Payload) -> bool:
    """Whether exactly these files with exactly this content are shown; modes and owners do not count."""
    found: dict[str, Path] = {}
    for directory, _, files in os.walk(shown):
        found |= {str((Path(directory) / name).relative_to(shown)): Path(directory) / name for name in files}
    if found.keys() != payload.keys():
        return False
    return all(
        not file.is_symlink() and file.stat().st_size == len(payload[path].content)
        and file.read_bytes() == payload[path].content
        for path, file in found.items()
    )  # fmt: skip
