"""Starts the process of the embedded containerd, finds it again, and watches and ends it by pidfd.

It depends on no parent: the process that started it may be killed and replaced, and its pods' sessions continue. A file
beside its configuration contains its identity, and its environment the digest of the configuration that it was started
with.
"""

import asyncio
import hashlib
import logging
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

from shared.config.effective import EmbeddedContainerd
from shared.errors import OperatorError
from shared.files.atomic import write_atomically
from shared.host.masquerading import search_path
from shared.process.child_process import end_of
from shared.process.crash import crash_point
from shared.process.identity import identity_of, is_running

log = logging.getLogger(__name__)

_DIGEST = "BULKHEAD_CONTAINERD_CONFIG"
_IDENTITY = "process"  # beside the configuration file
_NAMESPACES = ("mnt", "pid", "user")
_MAX_STOP_SECONDS = 15.0  # until it has ended; supervisord gives the keeper 30


class ContainerdProcess:
    """A containerd that runs: a child of ours, or one that an earlier process of ours has started. `descriptor`: its
    pidfd, which `close` closes."""

    def __init__(self, pid: int, descriptor: int, child: "subprocess.Popen[bytes] | None" = None) -> None:
        self.pid, self._descriptor, self._child = pid, descriptor, child

    @classmethod
    def start(cls, embedded: EmbeddedContainerd, output: Path) -> Self:
        """Start one; `output` gets what it prints. Raises OperatorError, OSError."""
        binary = shutil.which(embedded.path)
        if binary is None:
            raise OperatorError(
                "is not an executable", where=embedded.path, remedy="install containerd, or set its path"
            )
        # CNI plugins look for iptables in the path of containerd.
        environment = {**os.environ, "PATH": search_path(), _DIGEST: _digest(embedded)}
        fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            child = subprocess.Popen(  # with the usual umask, which containerd expects where it sets no modes
                [binary, *_arguments(embedded.config_file)],
                stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, env=environment, umask=0o022,
            )  # fmt: skip
        finally:
            os.close(fd)
        crash_point("containerd.started")
        _note(embedded.config_file, child.pid)
        return cls(child.pid, os.pidfd_open(child.pid), child)

    @classmethod
    def find(cls, config_file: str, binary: str = "") -> Self | None:
        """Return the containerd that runs with this configuration file, None = there is none. For the arguments see
        `find_containerd`."""
        pid = find_containerd(config_file, binary)
        identity = identity_of(pid) if pid else ""
        with suppress(ProcessLookupError):
            if identity:
                descriptor = os.pidfd_open(pid)
                if identity_of(pid) == identity:  # compared after opening, so the descriptor is of this process
                    return cls(pid, descriptor)
                os.close(descriptor)
        return None

    def close(self) -> None:
        """Give the descriptor back; the process goes on."""
        os.close(self._descriptor)

    def runs_by(self, embedded: EmbeddedContainerd) -> bool:
        """Return whether its configuration is the one with which it was started."""
        try:
            environment = Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return f"{_DIGEST}={_digest(embedded)}".encode() in environment

    async def end(self, timeout: float = _MAX_STOP_SECONDS) -> None:
        """End it, by SIGTERM, and by SIGKILL when it runs `timeout` seconds later; wait for that. Its shims stay."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout):
                await self.wait()
        except TimeoutError:
            log.error("containerd, process %s, did not end within %.0f s: it is killed", self.pid, timeout)
            self._signal(signal.SIGKILL)
            await self.wait()

    async def wait(self) -> int | None:
        """Wait for its end; the exit code, None where it was no child of ours."""
        await end_of(self._descriptor)
        return self._child.wait() if self._child else None

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)


def find_containerd(config_file: str, binary: str = "") -> int:
    """Return the PID of the containerd that a keeper started with this configuration file; 0 where there is none.

    It is found by the identity that the keeper saved. If the keeper was killed before that, it is found by its command
    line, executable (`binary`, "" = any), user and namespaces; a process of a container has others.
    """
    with suppress(OSError, ValueError):
        identity = Path(config_file).with_name(_IDENTITY).read_text(encoding="utf-8")
        if is_running(identity):
            return int(identity.split("/")[1])
    found: list[tuple[int, int]] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if _is_ours(entry, config_file, shutil.which(binary) if binary else None):
                    identity = identity_of(int(entry.name))
                    if identity:
                        found.append((int(identity.rpartition("/")[2]), int(entry.name)))
    return min(found, default=(0, 0))[1]  # the oldest, because a new child has the same command line until its exec


def _arguments(config_file: str) -> list[str]:
    return ["--config", config_file]


def _is_ours(process: Path, config_file: str, executable: str | None) -> bool:
    if (process / "cmdline").read_bytes().split(b"\0")[1:-1] != list(map(os.fsencode, _arguments(config_file))):
        return False
    ours = Path("/proc/self")
    return (
        process.stat().st_uid == os.geteuid()
        and all((process / "ns" / name).readlink() == (ours / "ns" / name).readlink() for name in _NAMESPACES)
        and (executable is None or (process / "exe").samefile(executable))
    )


def _note(config_file: str, pid: int) -> None:
    try:
        write_atomically(Path(config_file).with_name(_IDENTITY), identity_of(pid).encode())
    except OSError as error:  # without the file, the next keeper looks at all processes
        log.warning("%s: which process containerd is cannot be noted: %s", Path(config_file).parent, error.strerror)


def _digest(embedded: EmbeddedContainerd) -> str:
    return hashlib.sha256(Path(embedded.config_file).read_bytes() + embedded.path.encode()).hexdigest()
