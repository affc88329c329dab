"""One power-on of a machine: User Mode Linux as a process, with everything that it needs of this machine in namespaces
that end with it: processes, mounts, its memory (a file of /dev/shm), its end of the network."""

import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.machine.network import Address, MachineNetwork
from tests.machine.root import Root

_MEMORY_MIB = 2048  # of one machine, in a file system of little more
_END_SECONDS = 30.0  # for the end of processes after SIGKILL
_CHILD = ("setpriv", "--pdeathsig", "KILL")  # it ends with us, however we end
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")
# A shell is the first process, for a kernel that panics ends itself by a signal that a first process ignores.
_SCRIPT = """\
set -e
mount -t tmpfs -o size={memory}m,mode=1777 tmpfs /dev/shm
ip link delete {tap} 2>/dev/null || true
ip tuntap add {tap} mode tap
ip link set {tap} master {bridge} up
{libraries}
{shown}
{kernel} {options} || exit $?
exit 0
"""


def _show_libraries(root: Root) -> str:
    """The line that lets the kernel, and what starts after it in its namespace, use the libraries of its Debian."""
    if root.libraries is None:
        return ""
    ours = "/usr/lib/x86_64-linux-gnu"
    return f"mount -t overlay -o ro,lowerdir={shlex.quote(str(root.libraries))}:{ours} overlay {ours}"


def _show_directories(shared: Path, shown: Mapping[str, Path]) -> str:
    """The lines that show the machine further directories of ours, below /host, for as long as it runs."""
    lines = []
    for name, path in shown.items():
        place = shlex.quote(str(shared / name))
        lines += [f"mount --bind {shlex.quote(str(path))} {place}", f"mount -o remount,bind,ro {place}"]
    return "\n".join(lines)


@dataclass(frozen=True)
class Hardware:
    """What stays when the power goes. `disk`: a descriptor of ours; `shared`: a directory of ours that is /host in
    there; `options`: of the kernel's command line, after ours; `shown`: further directories of ours, by their name
    below /host, where `shared` has an empty directory of that name."""

    root: Root
    disk: int
    shared: Path
    network: MachineNetwork
    address: Address
    options: tuple[str, ...] = ()
    shown: Mapping[str, Path] = field(default_factory=dict)


class PowerOn:
    """`with PowerOn(hardware, logs) as power:`; its end is a power cut. `logs`: a new directory, for the console."""

    def __init__(self, hardware: Hardware, logs: Path) -> None:
        logs.mkdir()
        self.console = logs / "console.log"
        self.line, theirs = socket.socketpair()
        options = [
            f"mem={_MEMORY_MIB}M", f"ubd0=/proc/self/fd/{hardware.disk}", "root=/dev/ubda", "rw",
            "con=null", "con0=null,fd:1", "ssl=null", f"ssl0=fd:{theirs.fileno()}",
            f"vec0:transport=tap,ifname={hardware.address.tap},depth=64,gro=0", f"ip={hardware.address.option}",
            f"uml_dir={logs}/", f"umid={hardware.address.name}", f"hostfs={hardware.shared}",
            f"systemd.hostname={hardware.address.name}", "selinux=0", "security=apparmor", "apparmor=1",
            "seccomp=auto",  # from Linux 6.16 on: system calls are caught without ptrace, for half of the CPU
            *hardware.options,
        ]  # fmt: skip
        script = _SCRIPT.format(
            memory=_MEMORY_MIB + 64, tap=hardware.address.tap, bridge=hardware.network.bridge,
            libraries=_show_libraries(hardware.root), shown=_show_directories(hardware.shared, hardware.shown),
            kernel=shlex.quote(str(hardware.root.kernel)), options=shlex.join(options),
        )  # fmt: skip
        command = [*_CHILD, *hardware.network.inside(*_NAMESPACES, "sh", "-c", script)]
        try:
            with self.console.open("wb") as console:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                    pass_fds=[theirs.fileno(), hardware.disk], start_new_session=True,
                )  # fmt: skip
        finally:
            theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """SIGKILL: the first process of its namespace takes the others with it. Return when the last one has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.line.settimeout(_END_SECONDS)
        with suppress(ConnectionError):
            while self.line.recv(65536):
                pass  # each of them holds the other end
        self.line.close()

    @property
    def pid(self) -> int:
        """The process that ends last."""
        return self._process.pid

    def console_size(self) -> int:
        """Bytes that the console has shown so far."""
        return self.console.stat().st_size

    def progress(self) -> int:
        """A number that grows with what the console shows, and with each 5 s that the machine waits for a processor:
        one that gets none does not hang."""
        waited = sum(map(_seconds_without_processor, _family_of(self._process.pid)))
        return self.console_size() + int(waited / 5)

    def tail(self, lines: int = 40) -> str:
        """The end of the console."""
        return "\n".join(self.console.read_text(errors="replace").splitlines()[-lines:])


def _family_of(process: int) -> list[int]:
    """The process and all that it has started, which still run."""
    found = [process]
    for one in found:
        with suppress(OSError):
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return found


def _seconds_without_processor(process: int) -> float:
    """How long the process was ready to run, and another one ran; 0.0 where the kernel does not count it."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    return 0.0
