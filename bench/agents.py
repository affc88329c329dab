"""Starts, stops and kills the two agents under test as processes, each with a home of its own, and removes them.

Knows where each keeps its files and which flags only it has; knows nothing of pods or figures.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from bench.configuration import common_flags, kubelet_configuration
from bench.errors import BenchError
from bench.processes import AgentProcesses
from tests.support.agents.agent import BIN
from tests.support.agents.free_ports import free_ports
from tools import leftovers

GO, BULKHEAD = "go", "bulkhead"
MAX_STOP_SECONDS = 40.0
_HIERARCHIES = Path("/sys/fs/cgroup")
_SYSCTLS: tuple[str, ...] = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
_SYSCTLS += ("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")
_LEFT_BY_GO = (Path("/var/lib/kubelet"), Path("/var/log/pods"), Path("/var/log/containers"))


class Agent:
    """One kubelet with a home, its own or a given one; `name` is its column in the report. Started in a session of its
    own."""

    name = ""

    def __init__(
        self,
        *,
        node: str,
        kubeconfig: Path,
        client_ca: Path,
        endpoint: str,
        equal_rates: bool = False,
        home: Path | None = None,
    ) -> None:
        self.node = node
        self.home = home or Path(tempfile.mkdtemp(prefix="bb", dir="/tmp"))
        self.environment: dict[str, str] = {}  # variables that the agent gets in addition
        self.port, healthz_port = free_ports(2)
        config = self.home / "kubelet.yaml"
        document = kubelet_configuration(
            home=self.home,
            client_ca=client_ca,
            port=self.port,
            healthz_port=healthz_port,
            equal_rates=equal_rates,
        )
        config.write_text(yaml.safe_dump(document))
        self._flags = common_flags(home=self.home, config=config, kubeconfig=kubeconfig, node=node, endpoint=endpoint)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def processes(self) -> AgentProcesses:
        """The processes that the newest start began."""
        assert self._process is not None, "the agent was not started"
        return AgentProcesses(self._process.pid)

    @property
    def log(self) -> Path:
        """What the agent printed."""
        return self.home / "console.log"

    def start(self) -> float:
        """Start the agent. Return the moment (CLOCK_MONOTONIC) just before."""
        with self.log.open("ab") as log:
            began = time.monotonic()
            self._process = subprocess.Popen(
                self._command(),
                env=self._environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return began

    def check_alive(self) -> None:
        """Raise BenchError with the agent's last line when it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["no reason given"]
            raise BenchError(f"{self.name} ended with {self._process.returncode}: {lines[-1][:300]}")

    def stop(self) -> None:
        """Stop the agent with SIGTERM, as a service manager does, and with SIGKILL when it does not end in time."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(MAX_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill all processes of the agent with SIGKILL."""
        if self._process is not None:
            self.processes.kill()
            self._process.wait()

    def remove(self) -> None:
        """Stop the agent, and remove its home, mounts and cgroups. The caller removes its sandboxes."""
        self.stop()
        leftovers.unmount_below(self.home)
        leftovers.remove_empty_cgroups(self.home.name)
        shutil.rmtree(self.home, ignore_errors=True)

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        left_out = ("BULKHEAD", "KUBELET", "NOTIFY", "WATCHDOG", "CRASH_AT")
        return {key: value for key, value in os.environ.items() if not key.startswith(left_out)} | self.environment


class Bulkhead(Agent):
    """This checkout's `kubelet` executable."""

    name = BULKHEAD

    def _command(self) -> list[str]:
        return [str(BIN / "kubelet"), *self._flags]

    def _environment(self) -> dict[str, str]:
        kept = {"BULKHEAD_KEEP_KERNEL_SETTINGS": "1"}  # the machine is left as it was
        return {**super()._environment(), **kept, "BULKHEAD_HOME": str(self.home)}


class GoKubelet(Agent):
    """The kubelet beside the control plane's programs. It changes sysctls and folders of the machine, which `remove`
    restores."""

    name = GO

    def __init__(self, *, folder: Path, **given: Any) -> None:
        super().__init__(**given)
        self._program = folder / "kubelet"
        self._sysctls = {name: (Path("/proc/sys") / name).read_text() for name in _SYSCTLS}
        self._there_before = {path for path in _LEFT_BY_GO if path.exists()}
        self._make_cgroup()

    def remove(self) -> None:
        """Remove the agent, and restore what it changed on the machine."""
        super().remove()
        for name, value in self._sysctls.items():
            path = Path("/proc/sys") / name
            if path.read_text() != value:
                path.write_text(value)
        for path in _LEFT_BY_GO:
            if path not in self._there_before:
                leftovers.unmount_below(path)
                shutil.rmtree(path, ignore_errors=True)

    @property
    def command(self) -> list[str]:
        """The agent's command line."""
        return self._command()

    def _command(self) -> list[str]:
        usage = subprocess.run([self._program, "--help"], capture_output=True, text=True, check=False).stdout
        remote = ["--container-runtime=remote"] if "--container-runtime " in usage else []
        return [str(self._program), *self._flags, *remote]

    def _make_cgroup(self) -> None:
        """Create the Go kubelet's cgroup root in every hierarchy; it does not do so itself."""
        for top in (_HIERARCHIES, *_HIERARCHIES.iterdir()):
            if top.is_symlink() or not (top / "cgroup.procs").exists():
                continue
            (top / self.home.name).mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # a new cgroup has none, and no process may enter it
                if (top / name).exists():
                    (top / self.home.name / name).write_text((top / name).read_text())


def go_version(folder: Path) -> str:
    """Return the Go kubelet's version: `1.20.2`; "" when there is none."""
    program = folder / "kubelet"
    if not program.exists():
        return ""
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return output.strip().rpartition("v")[2]
