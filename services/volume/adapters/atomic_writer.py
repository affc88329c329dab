"""Writes the files of a volume so that a reader sees all the old ones or all the new ones (volumes.md 9); blocking.

The files are in a directory whose name begins with `..`; `..data` is a symlink to it, and each file's first component a
symlink into `..data`. The symlinks of new files are made before `..data` is changed: until then they are dangling, from
then on they lead to the new content, so that all new files appear at once. A reader that has resolved `..data` and has
not opened its file yet still finds it: a replaced directory stays for `KEPT_SECONDS`. A kill at any point leaves
`..data` old or new; what else it leaves is found by its name and removed by the next run.
"""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from services.volume.core.files.payload import Payload
from services.volume.core.files.payload_paths import clean_paths, stale_links, top_components
from shared.process.crash import crash_point

DATA = "..data"
_NEW_DATA = "..data_tmp"
_GENERATION = re.compile(r"\.\.\d{4}(_\d\d){5}\.\d+")
_DIRECTORY_MODE = 0o755
KEPT_SECONDS = 1.0  # a replaced directory stays for so long; its modification time is when it was replaced
MAX_KEPT_DIRECTORIES = 100  # replaced directories at once: updates follow each other faster only in a test
MAX_KEPT_BYTES = 8 << 20  # that replaced directories hold together; the last one stays whatever it holds


class AtomicWriter:
    """Writes the files of one volume into its directory `volume`.

    `give_ownership` is called with that directory before new files are shown, and changes the owner of all that is in
    it; None = the files stay ours.
    """

    def __init__(self, volume: Path, give_ownership: Callable[[Path], None] | None = None) -> None:
        self._volume, self._give_ownership = volume, give_ownership

    @property
    def current(self) -> Path | None:
        """Return the directory that `..data` shows; None = it shows none, or the directory is missing."""
        try:
            name = str((self._volume / DATA).readlink())
        except OSError:
            return None
        directory = self._volume / name
        return directory if _GENERATION.fullmatch(name) and directory.is_dir() else None

    @property
    def has_old_files(self) -> bool:
        """Return whether replaced directories are kept, so that `remove_old_files` has to be called after
        `KEPT_SECONDS`."""
        shown = self.current
        return any(shown is None or path.name != shown.name for path in self._generations())

    def write(self, payload: Payload, *, wall: float) -> bool:
        """Show these files and no others; return whether anything was written. `wall`: seconds since the epoch.

        Raises ContentError (a path), and OSError: then the old files are still shown.
        """
        payload, old = clean_paths(payload), self.current
        kept = min(MAX_KEPT_DIRECTORIES, MAX_KEPT_BYTES // max(1, sum(len(file.content) for file in payload.values())))
        self._clear(old, wall, kept)
        written = old is None or not _same(old, payload)
        if written:
            try:
                new = self._replace(old, payload, wall)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self.has_old_files:
                    raise
                self._clear(old, wall, 0)
                new = self._replace(old, payload, wall)
            crash_point("volume.writer.rename")
            old = new
        self._link(top_components(payload))
        for name in stale_links(self._links(), payload):
            (self._volume / name).unlink()
        crash_point("volume.writer.stale_links")
        self._clear(old, wall, max(1, kept))
        crash_point("volume.writer.old_directory")
        return written

    def remove_old_files(self, *, wall: float) -> None:
        """Remove the directories that were replaced `KEPT_SECONDS` ago. `wall`: seconds since the epoch. Raises
        OSError."""
        if (shown := self.current) is not None:
            self._clear(shown, wall, MAX_KEPT_DIRECTORIES)

    def _replace(self, old: Path | None, payload: Payload, wall: float) -> Path:
        """Write the files into a new directory and show it instead of the old one. Raises OSError: then the old files
        are shown, and nothing is left of the new ones."""
        new = self._make_generation(wall)
        try:
            self._fill(new, payload)
            if self._give_ownership is not None:
                self._give_ownership(self._volume)
            crash_point("volume.writer.ownership")
            self._link(top_components(payload))
            crash_point("volume.writer.links")
            (self._volume / _NEW_DATA).symlink_to(new.name)
            crash_point("volume.writer.data_link")
            if old is not None:
                os.utime(old, (wall, wall))
            (self._volume / _NEW_DATA).rename(self._volume / DATA)
        except OSError:
            (self._volume / _NEW_DATA).unlink(missing_ok=True)
            shutil.rmtree(new)
            raise
        return new

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
        """Return the names of the symlinks at the top of the volume that lead into `..data`."""
        with os.scandir(self._volume) as entries:
            links = [entry.name for entry in entries if entry.is_symlink()]
        return [name for name in links if str((self._volume / name).readlink()) == f"{DATA}/{name}"]

    def _generations(self) -> list[Path]:
        with os.scandir(self._volume) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return [self._volume / name for name in names if _GENERATION.fullmatch(name)]

    def _clear(self, shown: Path | None, wall: float, kept: int) -> None:
        """Remove what a killed run left (a symlink that was not renamed, and directories) and the directories that were
        replaced, except for the newest `kept` ones of the last `KEPT_SECONDS`."""
        (self._volume / _NEW_DATA).unlink(missing_ok=True)
        replaced = [(path.stat().st_mtime, path) for path in self._generations() if shown is None or path != shown]
        for number, (moment, path) in enumerate(sorted(replaced, reverse=True)):
            if shown is None or number >= kept or not abs(wall - moment) < KEPT_SECONDS:
                shutil.rmtree(path)


def _same(shown: Path, payload: Payload) -> bool:
    """Return whether exactly these files with exactly this content are shown; modes and owners do not count."""
    files = {str(file.relative_to(shown)): file for file in shown.rglob("*") if not file.is_dir() or file.is_symlink()}
    return files.keys() == payload.keys() and all(_has_content(files[path], payload[path].content) for path in files)


def _has_content(file: Path, content: bytes) -> bool:
    return not file.is_symlink() and file.stat().st_size == len(content) and file.read_bytes() == content
