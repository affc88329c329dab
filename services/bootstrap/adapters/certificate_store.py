"""Reads and writes the certificates of one prefix in `--cert-dir`, as kubelets keep them (config.md 5.3).

`<prefix>-current.pem` is a link to the newest `<prefix>-<local time>.pem`. Content is checked only by a function that
the caller passes. Files of earlier certificates are never removed.
"""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from shared.errors import OperatorError
from shared.files.atomic import sync_directory, write_atomically
from shared.process.crash import crash_point

_MAX_FILE_BYTES = 2**20  # of a certificate file


class PairFiles(Struct, frozen=True):
    """The files of a certificate and its key, which may be the same. `is_current`: the link names them."""

    certificate: Path
    key: Path
    is_current: bool = False


class StoredPair(Struct, frozen=True):
    """The texts of a pair as they were read; secret. `mark` changes with the files."""

    files: PairFiles
    certificate: str
    key: str
    mark: tuple[object, ...]

    def __repr__(self) -> str:
        return f"StoredPair({self.files!r})"


class CertificateStore:
    """The store of one certificate. `configured`: the pair that the configuration names, used while there is no current
    one."""

    def __init__(self, prefix: str, directory: str, configured: tuple[str, str] = ("", "")) -> None:
        self._prefix, self._directory, self._configured = prefix, Path(directory), configured
        self.current = self._directory / f"{prefix}-current.pem"
        self._updated = self._directory / f"{prefix}-updated.pem"

    def recover(self) -> None:
        """Finish a `put` of the first certificate that a kill interrupted, or that of a Go kubelet, which removes the
        link before it renames the new one. Raises OSError."""
        if not os.path.lexists(self.current) and self._updated.is_symlink():
            self._updated.rename(self.current)
            sync_directory(self._directory)

    def find(self) -> PairFiles | None:
        """Return the files of the pair to use, None where there is none; their content is not checked."""
        if self.current.exists():
            return PairFiles(self.current, self.current, is_current=True)
        plain = (str(self._directory / f"{self._prefix}.crt"), str(self._directory / f"{self._prefix}.key"))
        for certificate, key in (self._configured, plain):
            if certificate and key and Path(certificate).exists() and Path(key).exists():
                return PairFiles(Path(certificate), Path(key))
        return None

    def mark(self) -> tuple[object, ...]:
        """Return a value that differs whenever another pair, or another content, is to be used."""
        files = self.find()
        return () if files is None else (files, *(_mark(path) for path in (files.certificate, files.key)))

    def read(self) -> StoredPair | None:
        """Return the pair to use, None where there is none. Raises OperatorError when it cannot be read."""
        mark = self.mark()
        files = self.find()
        if files is None:
            return None
        return StoredPair(files, _text(files.certificate), _text(files.key), mark)

    def put(self, chain: str, key: str, wall: float, check: Callable[[str], None]) -> Path:
        """Make this pair (PEM) the current one; returns its file. `check` gets the text read back, and raises for one
        that is bad. Raises OSError, OperatorError."""
        for link in (self.current, self._updated):
            if os.path.lexists(link) and not link.is_symlink():
                raise OperatorError("is a file and not a link", where=str(link), remedy="move it away")
        make_directory(self._directory)
        file = self._dated(wall)
        while os.path.lexists(file):  # the pair in use, of the same second, must not change before this one is checked
            wall += 1
            file = self._dated(wall)
        try:
            write_atomically(file, f"{_ended(chain)}{_ended(key)}".encode(), 0o600)
        except OSError as error:  # without the file's name, which differs at each attempt, the line is logged once
            raise OSError(error.errno, error.strerror, str(self._directory)) from None
        crash_point("bootstrap.certificate.written")
        check(_text(file))
        self._updated.unlink(missing_ok=True)
        self._updated.symlink_to(file)
        crash_point("bootstrap.certificate.linked")
        self._updated.replace(self.current)
        sync_directory(self._directory)
        crash_point("bootstrap.certificate.stored")
        return file

    def _dated(self, wall: float) -> Path:
        stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.localtime(wall))
        return self._directory.absolute() / f"{self._prefix}-{stamp}.pem"


def make_directory(directory: Path) -> None:
    """Make the directory and its parents, with mode 0755, where they are missing. Raises OSError."""
    for missing in reversed([d for d in (directory, *directory.parents) if not d.exists()]):
        missing.mkdir(exist_ok=True)
        missing.chmod(0o755)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _mark(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _text(path: Path) -> str:
    remedy = "make it a readable PEM file, or remove it to have another one asked for"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OperatorError("is not a regular file", where=str(path), remedy=remedy)
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise OperatorError(f"cannot be read: {error.strerror}", where=str(path), remedy=remedy) from None
