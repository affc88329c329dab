"""The embedded containerd as a process: started, found again by its command line, watched and ended by pidfd.

It is tied to no parent: whoever started it may be killed and followed by another, and its pods' sessions go on. In its
environment it has the digest of the configuration it was started with.
"""

import hashlib
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

from shared.child_process import process_end
from shared.config.effective import EmbeddedContainerd
from shared.errors import OperatorError
from shared.process_identity import identity_of

_DIGEST = "BULKHEAD_CONTAINERD_CONFIG"


class ContainerdProcess:
    """One that runs: a child of ours, or one that an earlier process of ours has started."""

    def __init__(self, pid: int, child: "subprocess.Popen[bytes] | None" = None) -> None:
        self.pid, self._child = pid, child
        self._descriptor = os.pidfd_open(pid)

    @classmethod
    def start(cls, embedded: EmbeddedContainerd, output: Path) -> Self:
        """Start one; `output` gets what it prints. Raises OperatorError, OSError."""
        binary = shutil.which(embedded.path)
        if binary is None:
            raise OperatorError(
                "is not an executable", where=embedded.path, remedy="install containerd, or set its path"
            )
        environment = {**os.environ, _DIGEST: _digest(embedded)}
        fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            child = subprocess.Popen(  # the umask: containerd sets modes where they matter, and expects the usual one
                [binary, "--config", embedded.config_file],
                stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, env=environment, umask=0o022,
            )  # fmt: skip
        finally:
            os.close(fd)
        return cls(child.pid, child)

    @classmethod
    def find(cls, config_file: str) -> Self | None:
        """The one that runs with this configuration file, if there is one."""
        pid = find_containerd(config_file)
        with suppress(ProcessLookupError):
            return cls(pid) if pid else None
        return None

    def runs_by(self, embedded: EmbeddedContainerd) -> bool:
        """Whether its configuration file still says what it said when it was started."""
        try:
            environment = Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return f"{_DIGEST}={_digest(embedded)}".encode() in environment

    def terminate(self) -> None:
        """Tell it to end; its shims stay."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGTERM)

    async def wait(self) -> int | None:
        """Wait for its end; the exit code, None where it was no child of ours."""
        await process_end(self.pid)
        return self._child.wait() if self._child else None


def find_containerd(config_file: str) -> int:
    """The id of the containerd that runs with this configuration file; 0 where there is none."""
    found: list[tuple[int, int]] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if (entry / "cmdline").read_bytes().split(b"\0")[1:] == [b"--config", os.fsencode(config_file), b""]:
                    identity = identity_of(int(entry.name))
                    if identity:
                        found.append((int(identity.rpartition("/")[2]), int(entry.name)))
    return min(found, default=(0, 0))[1]  # the oldest: a child of it has the same command line until it executes


def _digest(embedded: EmbeddedContainerd) -> str:
    return hashlib.sha256(Path(embedded.config_file).read_bytes() + embedded.path.encode()).hexdigest()
