"""The `kubelet` executable with a home, ports and, where asked for, a service manager of its own. No runtime."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from bus.lock import ServiceLock
from bus.messages.streams import SERVICES
from tests.process.supervised import alive, eventually
from tests.support.agents import evidence
from tests.support.agents.agent import BIN
from tests.support.agents.free_ports import free_ports
from tests.support.agents.kept_machine import KEPT_MACHINE
from tests.support.waits.deadline import WAIT_SECONDS
from tools.leftovers import end_agent, unmount_below

CONFIGURATION = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: {port}
readOnlyPort: 0
healthzPort: 0
makeIPTablesUtilChains: false
containerRuntimeEndpoint: unix://{home}/no-runtime.sock
authentication: {{webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
"""


class ServiceManager:
    """Plays systemd: a datagram socket, and when each message came."""

    def __init__(self, directory: Path) -> None:
        self.address = str(directory / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self.messages: list[tuple[float, str]] = []  # CLOCK_MONOTONIC, text

    def listen(self, seconds: float) -> list[str]:
        """What comes within so many seconds."""
        before, deadline = len(self.messages), time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                self.messages.append((time.monotonic(), self._socket.recv(4096).decode()))
            except TimeoutError:
                break
        return [text for _, text in self.messages[before:]]

    def wait(self, text: str, seconds: float = 3 * WAIT_SECONDS) -> None:
        """Until this message comes."""
        deadline = time.monotonic() + seconds
        while text not in self.listen(0.05):
            assert time.monotonic() < deadline, f"no {text} within {seconds} s: {self.messages}"

    def close(self) -> None:
        self._socket.close()


class Kubelet:
    """`with Kubelet() as kubelet:` lays the home out; `start` starts it, as often as wanted."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="bk", dir="/tmp"))
        self.run_dir, self.log_dir = self.home / "run", self.home / "log"
        self.config = self.home / "kubelet.yaml"
        [self.port] = free_ports(1)
        self.config.write_text(CONFIGURATION.format(port=self.port, home=self.home))
        self.environment: dict[str, str] = {}
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        evidence.live.add(self.home)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        end_agent(self.home)
        evidence.live.discard(self.home)
        if kind is not None:
            print(self.stderr(), evidence.show(self.home, evidence.of_running_test()), sep="\n")
        unmount_below(self.home)
        shutil.rmtree(self.home)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The newest one."""
        return self.processes[-1]

    def command(self, *flags: str) -> list[str]:
        """What starts it."""
        return [str(BIN / "kubelet"), f"--config={self.config}", *flags]

    def start(self, *flags: str, argv: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """Start it; its streams are `stdout` and `stderr` of the home."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("BULKHEAD", "KUBELET", "NOTIFY", "WATCHDOG"))}
        given = {**clean, **KEPT_MACHINE, "BULKHEAD_HOME": str(self.home), **self.environment, **(environment or {})}
        with (self.home / "stdout").open("ab") as out, (self.home / "stderr").open("ab") as err:
            process = subprocess.Popen(
                list(argv) or self.command(*flags),
                env=given, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, cwd="/",
            )  # fmt: skip
        self.processes.append(process)

    def stderr(self) -> str:
        return (self.home / "stderr").read_text(errors="replace")

    def wait_stderr(self, text: str, seconds: float = WAIT_SECONDS) -> str:
        """Everything on its standard error, once the text is among it."""
        return eventually(lambda: output if text in (output := self.stderr()) else "", f"{text!r} on stderr", seconds)

    def holders(self) -> dict[str, int]:
        """The processes of the services that run."""
        found = {name: ServiceLock(self.run_dir, name).holder() or 0 for name in SERVICES}
        return {name: pid for name, pid in found.items() if pid and alive(pid)}

    def wait_all(self) -> dict[str, int]:
        """The seven, once each has logged its start on standard error."""
        for name in SERVICES:
            self.wait_stderr(f"{name} started as process")
        return eventually(lambda: found if len(found := self.holders()) == len(SERVICES) else {}, "all seven")

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = WAIT_SECONDS) -> int:
        """Signal it; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


def is_watched(path: Path, process: int) -> bool:
    """Return whether an inotify descriptor of the process watches the file."""
    watch = f" ino:{path.stat().st_ino:x} "
    lines: list[str] = []
    for file in Path(f"/proc/{process}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # a descriptor that it closes meanwhile
            lines += file.read_text().splitlines()
    return any(line.startswith("inotify wd:") and watch in line for line in lines)
