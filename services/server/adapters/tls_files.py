"""The files of the TLS side: which ones, what is in them, where to watch for their change (config.md 5.2, 5.5).

Decides which of several serving pairs counts; must not know contexts or connections.
"""

import os
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from services.server.core.listening.tls_settings import pair_problem
from shared.config.effective import EffectiveConfig

CURRENT = "kubelet-server-current.pem"
_MAX_LINKS = 40  # that are followed in one path, as in the kernel
_MAX_FILE_BYTES = 1 << 20  # enough for a client CA of some hundred certificates


class Pair(Struct, frozen=True):
    """A serving pair as it was read. `issued`: it came from the API server, so that the seeds no longer count."""

    certificate_file: str
    key_file: str
    certificate: bytes
    key: bytes
    issued: bool

    def __repr__(self) -> str:
        return f"Pair({self.certificate_file!r}, …)"


class BadFileError(Exception):
    """A file that cannot be used; the text is one line with the file, what is wrong, and the remedy."""


class PairLocation(Struct, frozen=True):
    """Where a serving pair may be. The names are equal where one PEM file has both."""

    certificate_file: str
    key_file: str
    issued: bool = False


def places_of(config: EffectiveConfig) -> tuple[PairLocation, ...]:
    """Return where serving pairs may be, the one that counts first. Empty = there will be none."""
    given = config.tls_cert_file and config.tls_private_key_file
    places = [PairLocation(config.tls_cert_file, config.tls_private_key_file)] if given else []
    if config.server_tls_bootstrap:
        current = f"{config.cert_dir}/{CURRENT}"
        unnumbered = f"{config.cert_dir}/kubelet-server"
        places = [
            PairLocation(current, current, issued=True),
            *places,
            PairLocation(f"{unnumbered}.crt", f"{unnumbered}.key"),
        ]
    return tuple(places)


def read_pair(place: PairLocation) -> Pair | None:
    """Return the pair, None when neither file exists. Raises BadFileError; what only OpenSSL can check is not
    checked."""
    contents = [_read(file) for file in (place.certificate_file, place.key_file)]
    certificate, key = contents
    if certificate is None and key is None:
        return None
    for file, content in zip((place.certificate_file, place.key_file), contents, strict=True):
        if content is None:
            raise BadFileError(f"{file}: No such file or directory (put both files of the pair there)")
    assert certificate is not None and key is not None
    which, problem = pair_problem(certificate, key)
    if which:
        file = place.certificate_file if which == "certificate" else place.key_file
        raise BadFileError(f"{file} {problem} (replace it)")
    return Pair(place.certificate_file, place.key_file, certificate, key, place.issued)


def read_authority(file: str) -> bytes:
    """Return the content of the client CA's file. Raises BadFileError."""
    content = _read(file)
    if content is None:
        raise BadFileError(f"{file}: No such file or directory (give the path of a readable PEM file)")
    return content


def directories_of(paths: Iterator[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories in which a change of these files shows: those of every link on the way; the nearest one
    that exists where one is missing.
    """
    found = set()
    for path in paths:
        for step in _links(Path(path)):
            directory = step.parent
            while not directory.is_dir() and directory != directory.parent:
                directory = directory.parent
            found.add(os.path.realpath(directory))
    return tuple(sorted(found))


def line_of(error: Exception) -> str:
    """Return an error of ssl or the system in the operator's words."""
    if isinstance(error, ssl.SSLError):
        known = {"KEY_VALUES_MISMATCH": "the key is not the one of the certificate"}
        text = known.get(getattr(error, "reason", None) or "", str(error))
        return " ".join(text.partition(" (_ssl")[0].split())
    return (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file in memory with this content, so that OpenSSL gets exactly the bytes that were read."""
    descriptor = os.memfd_create("tls")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _links(path: Path) -> Iterator[Path]:
    for _ in range(_MAX_LINKS):
        yield path
        try:
            path = path.parent / path.readlink()
        except OSError:
            return


def _open_at_once(file: str, flags: int) -> int:
    """Open it without waiting for the writer of a pipe, which may never come."""
    return os.open(file, flags | os.O_NONBLOCK)


def _read(file: str) -> bytes | None:
    try:
        with open(file, "rb", opener=_open_at_once) as stream:
            if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
                raise BadFileError(f"{file} is a pipe (make it a readable PEM file)")
            content = stream.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadFileError(f"{file}: {error.strerror} (make it a readable PEM file)") from None
    if len(content) > _MAX_FILE_BYTES:
        raise BadFileError(f"{file} is larger than {_MAX_FILE_BYTES >> 20} MiB (is it the right file?)")
    return content
