"""Writes the resolved credentials into `<run dir>/credentials/`, from which services load them, only when they differ.

New content gets new file names, then credentials.json names them: a crash at any line leaves the old or the new ones.
"""

import shutil
from pathlib import Path

from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from shared.errors import OperatorError
from shared.files.atomic import write_atomically
from shared.kube.credentials import Credentials, credentials_path, encode_credentials, load_credentials
from shared.model.frozen_copy import replace
from shared.process.crash import crash_point

_PIECES = {
    "ca_file": ("ca", "ca.crt"), "client_certificate_file": ("certificate", "client.crt"),
    "client_key_file": ("key", "client.key"), "token_file": ("token", "token"),
}  # fmt: skip


class CredentialFiles:
    """The credential files of one run directory; only bootstrap writes them."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.directory = credentials_path(run_dir).parent

    def prepare(self) -> None:
        """Make the directory, and remove what killed children left in it. Raises OSError."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        for left in self.directory.glob(".*.tmp"):
            left.unlink(missing_ok=True)

    def present(self) -> Credentials | None:
        """Return the credentials in force, None where there are none that can be used."""
        try:
            return load_credentials(self._run_dir)
        except (OSError, OperatorError):
            return None

    def put(self, material: ResolvedCredentials) -> bool:
        """Bring credentials into force; return False when they are in force already. Raises OSError."""
        before = self.present()
        if before is not None and _is_same(before, material):
            return False
        version = max([before.version if before else 0, *self._versions()]) + 1
        after = Credentials(
            version=version,
            server=material.server,
            insecure_skip_tls_verify=material.insecure_skip_tls_verify,
            tls_server_name=material.tls_server_name,
            proxy_url=material.proxy_url,
        )
        for name, (piece, stem) in _PIECES.items():
            if text := getattr(material, piece):
                path = self.directory / f"{version}.{stem}"
                write_atomically(path, text.encode())
                after = replace(after, **{name: str(path)})  # type: ignore[arg-type]  # all of _PIECES are str
                crash_point("bootstrap.credentials.piece")
        write_atomically(self.directory / credentials_path(self._run_dir).name, encode_credentials(after))
        crash_point("bootstrap.credentials.written")
        self._remove_all_but(after, before)
        return True

    def remove(self) -> None:
        """Remove all credentials, because the node runs alone now."""
        credentials_path(self._run_dir).unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _versions(self) -> list[int]:
        """Return the version numbers in the names of all files, also of those that a crash left before a record named
        them, so that no number is used twice."""
        heads = (path.name.partition(".")[0] for path in self.directory.iterdir())
        return [int(head) for head in heads if head.isdecimal()]

    def _remove_all_but(self, *kept: Credentials | None) -> None:
        """Remove older files, except the previous ones, which a service may still be about to open."""
        names = {Path(getattr(one, name)).name for one in kept if one for name in _PIECES}
        for path in self.directory.iterdir():
            if path.name.partition(".")[0].isdecimal() and path.name not in names:
                path.unlink(missing_ok=True)


def _is_same(present: Credentials, material: ResolvedCredentials) -> bool:
    plain = ("server", "insecure_skip_tls_verify", "tls_server_name", "proxy_url")
    if any(getattr(present, name) != getattr(material, name) for name in plain):
        return False
    try:
        texts = {
            piece: Path(file).read_bytes() if (file := getattr(present, name)) else b""
            for name, (piece, _) in _PIECES.items()
        }
    except OSError:
        return False
    return all(getattr(material, piece).encode() == text for piece, text in texts.items())
