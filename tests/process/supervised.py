"""An agent in a directory of its own: supervisord with the checkout's configuration, its paths moved there."""

import configparser
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar
from xmlrpc.client import ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from bus.lock import ServiceLock
from bus.manifest import read_manifest
from tests.support.agents import evidence
from tests.support.agents.bus_client import next_beat
from tests.support.agents.kept_machine import KEPT_MACHINE
from tests.support.agents.preloaded import Preloaded
from tests.support.agents.supervisord_start import start_supervisord
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.looks import pause_after

CHECKOUT = Path(__file__).resolve().parents[2]
T = TypeVar("T")

CONFIGURATION = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: {port}
healthzPort: 0
makeIPTablesUtilChains: false
authentication: {{webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
"""


def eventually(look: Callable[[], T], what: str, seconds: float = WAIT_SECONDS) -> T:
    """What `look` returns once it is true; other processes send no event, so this polls."""
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what}"
        time.sleep(pause_after(waited))
    return found


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def troubles(agent: "Agent") -> str:
    """Return the troubles of bootstrap's next beat, separated by semicolons."""
    beat = await next_beat(read_manifest(agent.run_dir), "bootstrap")
    return "; ".join(beat.troubles)


class Agent:
    """supervisord running some of the programs; `dummies` are services played by `dummy.py`."""

    def __init__(
        self, home: Path, dummies: Iterable[str] = ("status",), programs: Iterable[str] = ("bootstrap",)
    ) -> None:
        self.home, self.run_dir, self.log_dir = home, home / "run", home / "log"
        self.config = home / "kubelet.yaml"
        self.args = ["--config", str(self.config)]
        self.environment: dict[str, str] = {}
        self.supervisord: subprocess.Popen[bytes] | Preloaded | None = None
        self._seen: set[int] = set()
        evidence.live.add(home)
        self.conf = self._write_conf(tuple(dummies), (*programs, "supervisord"))
        self.configure()

    def configure(self, more: str = "", port: int = 32250) -> None:
        """Write the configuration file."""
        self.config.write_text(CONFIGURATION.format(port=port) + more)

    def start(self, stderr: int | None = None, conf: Path | None = None) -> None:
        """Start a supervisord in the foreground."""
        environment = self._prepare()
        command = [str(CHECKOUT / ".venv/bin/supervisord"), "-n", "-c", str(conf or self.conf)]
        with (self.home / "console").open("ab") as console, Path(os.devnull).open("wb") as nothing:
            errors = console.fileno() if stderr is None else stderr
            self.supervisord = start_supervisord(command, environment, nothing.fileno(), errors)

    def run_bootstrap(self) -> str:
        """Run bootstrap alone, as supervisord does, to the end of a start that it refuses; what it prints.

        That supervisord ends with it is what `test_bootstrap.py` shows."""
        done = subprocess.run(
            [CHECKOUT / ".venv/bin/python", "-P", "-m", "services.bootstrap"],
            env=self._prepare(),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, ""), (done.returncode, done.stdout, done.stderr)
        return done.stderr

    def rpc(self, method: str, *arguments: Any) -> Any:
        """Call supervisord's interface."""
        transport = SupervisorTransport(None, None, serverurl=f"unix://{self.home}/s.sock")
        try:
            return getattr(ServerProxy("http://127.0.0.1", transport=transport).supervisor, method)(*arguments)
        finally:
            transport.close()

    def pid(self, program: str) -> int:
        """The program's process under the present supervisord, once it has one."""

        def look() -> int:
            try:
                pid = int(self.rpc("getProcessInfo", program)["pid"])
            except OSError:
                return 0
            self._seen.add(pid)
            return pid

        return eventually(look, f"{program} has a process")

    def holder(self, service: str, besides: int = 0) -> int:
        """The process that holds the service's lock, another than `besides`."""
        lock = ServiceLock(self.run_dir, service)

        def look() -> int:
            pid = lock.holder()
            return pid if pid and pid != besides else 0

        pid = eventually(look, f"{service} is held")
        self._seen.add(pid)
        return pid

    def logged(self, service: str, text: str) -> str:
        """The service's log, once it contains the text."""
        path = self.log_dir / f"{service}.log"
        return eventually(lambda: t if path.exists() and text in (t := path.read_text()) else "", f"{text!r} in {path}")

    def kill_supervisord(self) -> None:
        """SIGKILL, as in an accident: its children go on."""
        assert self.supervisord
        self.supervisord.kill()
        self.supervisord.wait()

    def stop(self) -> int:
        """Have supervisord stop everything; its exit code."""
        assert self.supervisord
        self.supervisord.send_signal(signal.SIGTERM)
        return self.supervisord.wait(WAIT_SECONDS)

    def clean_up(self) -> None:
        """End what this agent started and is left over."""
        evidence.live.discard(self.home)
        if self.supervisord and self.supervisord.poll() is None:
            self.supervisord.send_signal(signal.SIGCONT)
            self.stop()
        services = [path.stem for path in (self.run_dir / "locks").glob("*.lock")]
        left = {pid for service in services if (pid := ServiceLock(self.run_dir, service).holder())}
        for pid in self._seen | left:
            if alive(pid) and str(CHECKOUT).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    def _prepare(self) -> dict[str, str]:
        """Write the flags; the environment of the agent."""
        (self.home / "kubelet.args").write_text("\n".join(self.args))
        ours = ("BULKHEAD", "KUBELET", "CRASH", "SUPERVISOR")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**clean, **KEPT_MACHINE, "BULKHEAD_HOME": str(self.home), **self.environment}

    def _write_conf(self, dummies: tuple[str, ...], kept: tuple[str, ...]) -> Path:
        conf = configparser.RawConfigParser(inline_comment_prefixes=(";",))
        conf.read(CHECKOUT / "supervisord.conf")
        for section in conf.sections():
            name = section.rpartition(":")[2]
            if section.startswith("program:") and name in dummies:
                command = f"%(here)s/.venv/bin/python -P {CHECKOUT}/tests/process/dummy.py {name}"
                conf.set(section, "command", command)
            elif section.startswith("program:") and name not in kept:
                conf.remove_section(section)
        if os.geteuid() != 0:
            conf.remove_option("supervisord", "user")
        loaded = [f"services.{program}.service" for program in kept if program not in ("supervisord", "containerd")]
        loaded += ["services.bootstrap.containerd"] if "containerd" in kept else []
        conf.set("rpcinterface:preloading", "modules", " ".join([*loaded, "services.frame.launch"]))
        path = self.home / "supervisord.conf"
        with path.open("w") as file:
            conf.write(file)
        text = path.read_text().replace("%(here)s", str(CHECKOUT)).replace("/var/log/bulkhead-", f"{self.home}/")
        text = text.replace("/run/bulkhead-supervisord.sock", f"{self.home}/s.sock").replace(
            "/run/bulkhead-", f"{self.home}/"
        )
        path.write_text(text)
        return path
