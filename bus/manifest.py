"""Finds the services: the run directory, the addresses in it, the manifest file that names them, and the holders of the
locks.

Addresses follow from the run directory alone, so that a restarted peer is found by reconnecting. The directory `bus` of
mode 0700 is the access control of the bus: a process that may enter it may send. The record of a service's lock names
its process.
This module imports no event loop, because the command `bulkhead` needs none."""

import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from bus import codec
from bus.messages.manifest import Manifest
from bus.messages.services import SERVICES
from shared.errors import OperatorError
from shared.files.atomic import write_atomically
from shared.process.identity import is_running

MAX_SOCKET_PATH_BYTES = 107  # the size of sun_path without its NUL
MANIFEST_FILE = "manifest.json"


def addresses(run_dir: Path, services: Iterable[str] = SERVICES) -> dict[str, dict[str, str]]:
    """Return the addresses of each service: {"pub": "ipc://<run dir>/bus/<service>.pub", "req": …}. Raises
    OperatorError when a path is too long."""
    check_socket_paths(run_dir, services)
    return {service: {kind: f"ipc://{run_dir}/bus/{service}.{kind}" for kind in ("pub", "req")} for service in services}


def new_manifest(
    run_dir: Path, *, config_file: str = "", embedded_containerd: bool = False, services: Iterable[str] = SERVICES
) -> Manifest:
    """Return the manifest of this run directory, not written yet."""
    return Manifest(
        protocol=codec.PROTOCOL_VERSION,
        run_dir=str(run_dir),
        addresses=addresses(run_dir, services),
        config_file=config_file or str(run_dir / "config.json"),
        embedded_containerd=embedded_containerd,
    )


def check_socket_paths(run_dir: Path, services: Iterable[str] = SERVICES) -> None:
    """Raise OperatorError unless the run directory is absolute and its longest socket path fits into 107 bytes."""
    if not run_dir.is_absolute():
        raise OperatorError("is not an absolute path", where=f"run directory {run_dir}", remedy="give an absolute one")
    longest = max(len(os.fsencode(run_dir / "bus" / f"{service}.req")) for service in services)
    if longest > MAX_SOCKET_PATH_BYTES:
        spare = MAX_SOCKET_PATH_BYTES - (longest - len(os.fsencode(run_dir)))
        raise OperatorError(
            f"too long for sockets: {longest} bytes, at most {MAX_SOCKET_PATH_BYTES}",
            where=f"run directory {run_dir}",
            remedy=f"choose a run directory whose path has at most {spare} bytes",
        )


def prepare_run_dir(run_dir: Path) -> None:
    """Create the run directory with `bus` and `locks` in it, or check existing ones. All are ours. These two have mode
    0700. The run directory has 0711: root of a container with a user namespace of its own is another user of the
    machine, and its files below the run directory are reached by their whole path (pods.md 6.7).

    Raises OperatorError when a directory belongs to someone else, others may do more, or its path is too long."""
    check_socket_paths(run_dir)
    try:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        for directory, mode in ((run_dir, 0o711), (run_dir / "bus", 0o700), (run_dir / "locks", 0o700)):
            _make_ours(directory, mode)
    except OSError as error:
        raise OperatorError(
            f"cannot be prepared: {error.strerror}",
            where=f"run directory {run_dir}",
            remedy="choose a directory that this user may write to",
        ) from error


def write_manifest(manifest: Manifest) -> None:
    """Write `<run dir>/manifest.json`, 0600, so that a reader finds the old or the new one and never half of one."""
    write_atomically(Path(manifest.run_dir) / MANIFEST_FILE, codec.encode(manifest, "manifest") + b"\n")


def read_manifest(run_dir: Path) -> Manifest:
    """Return the manifest that bootstrap wrote. Raises OperatorError when there is none, or none that this version can
    read."""
    path = run_dir / MANIFEST_FILE
    try:
        manifest = codec.decode(path.read_bytes(), Manifest)
    except FileNotFoundError as error:
        raise OperatorError("does not exist yet", where=str(path), remedy="start bootstrap first") from error
    except OSError as error:
        raise OperatorError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="run as the user that runs bootstrap"
        ) from error
    except codec.UndecodableError as error:
        raise OperatorError(str(error), where=str(path), remedy="restart bootstrap: it rewrites the file") from error
    if not codec.speaks(manifest.protocol):
        raise OperatorError(
            f"is of bus protocol {manifest.protocol}, this is {codec.PROTOCOL_VERSION}",
            where=str(path),
            remedy="restart bootstrap and the services from one version",
        )
    return manifest


def _make_ours(directory: Path, mode: int) -> None:
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise OperatorError("is not a directory", where=str(directory), remedy="remove it or choose another one")
    if found.st_uid != os.geteuid():
        raise OperatorError(
            f"belongs to user {found.st_uid}, not to {os.geteuid()}",
            where=str(directory),
            remedy=f"chown {os.geteuid()} {directory}",
        )
    if stat.S_IMODE(found.st_mode) & 0o077 & ~mode:
        raise OperatorError(
            f"has mode {stat.S_IMODE(found.st_mode):04o}: other users could do more than they should",
            where=str(directory),
            remedy=f"chmod {mode:04o} {directory}",
        )
    directory.chmod(mode)  # whatever the umask removed, a set-gid parent added, or an earlier release made


class Holder(Struct, frozen=True):
    """A running process that holds a lock: its id, its identity (`shared.process.identity`), and the generation of the
    supervisord that started it ("" = none)."""

    pid: int
    process: str
    supervisord: str


def read_holder(path: Path) -> Holder | None:
    """Return the process that took the lock of this file last, if it runs and did not release it."""
    try:
        record = json.loads(path.read_bytes())
        holder = Holder(int(record["pid"]), str(record["process"]), str(record["supervisord"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return holder if is_running(holder.process) else None
