"""An agent for one test: the seven real processes under supervisord, with a home, ports and runtime of their own.

Starts and stops the agent, sends signals and receives its beats; does nothing with pods. Its waits poll.
"""

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, overload

import yaml

from bus.lock import ServiceLock
from bus.manifest import new_manifest
from bus.messages.beat import Beat
from bus.messages.streams import SERVICES
from bus.process_bus import ProcessBus
from services.bootstrap.adapters.containerd_process import find_containerd
from tests.support.agents import evidence
from tests.support.agents.free_ports import free_ports
from tests.support.agents.kept_machine import KEPT_MACHINE
from tests.support.agents.preloaded import Preloaded
from tests.support.agents.supervisord_start import start_supervisord
from tests.support.installed import ran_versions
from tests.support.installed.chosen_programs import chosen_cgroup_driver, chosen_handler, runs_in_docker
from tests.support.runtime.containerd import PrivateContainerd, network_of_our_own
from tests.support.runtime.docker import PrivateDocker
from tests.support.runtime.stops import Stop, stops_of_containerd, stops_of_docker
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.looks import pause_after
from tests.support.waits.stopped import wait_stopped
from tools import leftovers
from tools.clean import clean, remove_pods
from tools.containerd import answers, import_images
from tools.drained_console import DrainedConsole
from tools.home import Home
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_CONTENT, Image

T = TypeVar("T")

BIN = Path(sys.executable).parent
NODE = "node-a"


class Agent:
    """One agent. `async with World() as world:` starts it and waits for all seven beats (and its containerd).

    `containerd`: a running one to use instead of an embedded one; the world removes its pods at the end.
    `docker`: run the pods by a Docker of the world's own, behind the shim, instead of an embedded containerd.
    `config`: KubeletConfiguration fields that win over the world's own. `environment`: for supervisord and the seven.
    `flags`: further lines of kubelet.args. `start=False`: lay the home out and start nothing.
    """

    own_keys: ClassVar[Mapping[str, Any]] = {}  # further keys of BulkheadConfiguration
    preloaded: ClassVar[bool] = True  # False: supervisord is an interpreter of its own, as where its start is tested

    def __init__(
        self,
        *,
        containerd: PrivateContainerd | None = None,
        docker: bool = False,
        config: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        verbosity: int = 2,
        start: bool = True,
    ) -> None:
        self.home = Home(Path(tempfile.mkdtemp(prefix="bk", dir="/tmp")))
        self.beats: dict[str, Beat] = {}  # service -> the newest beat received
        uses_docker = docker or (containerd is None and runs_in_docker())
        self.docker = PrivateDocker(self.home.path / "docker") if uses_docker else None
        self._containerd, self._start, self._verbosity = containerd, start, verbosity
        self._port, self._read_only_port, self._healthz_port = free_ports(3)
        self._bridge, self._subnet = network_of_our_own()
        self._config, self._environment, self._flags = dict(config or {}), dict(environment or {}), list(flags)
        self._supervisord: subprocess.Popen[bytes] | Preloaded | None = None
        self._bus: ProcessBus | None = None
        self._ran: list[ran_versions.Ran] = []

    # Starts and signals

    async def __aenter__(self) -> Self:
        evidence.live.add(self.home.path)
        try:
            self.home.path.joinpath(leftovers.HOME_MARKER).touch()
            self.home.manifests.mkdir()
            if self.docker is not None:
                self.docker.directory.mkdir(exist_ok=True)
                await asyncio.to_thread(self.docker.start)
                await self.import_images((BUSYBOX_CONTENT, PAUSE_CONTENT))
            self.write_config()
            self.home.make()
            if self._start:
                await self.start()
        except BaseException:
            await self._take_down(failed=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._take_down(failed=kind is not None)

    def write_config(self, **fields: Any) -> None:
        """Write kubelet.yaml and kubelet.args; `fields` are KubeletConfiguration fields added for good."""
        self._config |= fields
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": "manifests",
            "podLogsDir": "log/pods",
            "cgroupRoot": f"/{self.home.path.name}",
            "cgroupDriver": chosen_cgroup_driver(),
            "address": "127.0.0.1",
            "port": self._port,
            "readOnlyPort": self._read_only_port,
            "healthzPort": self._healthz_port,
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "logging": {"verbosity": self._verbosity},
            # How full the machine's disk is decides nothing; a test of pressure sets its own thresholds.
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "makeIPTablesUtilChains": False,  # they would stay on the machine
            **({"containerRuntimeEndpoint": self._containerd.endpoint} if self._containerd else {}),
            **self._config,
        }
        own: dict[str, Any] = {"apiVersion": "bulkhead/v1alpha1", "kind": "BulkheadConfiguration", **self.own_keys}
        runtime: dict[str, Any] = {
            "embeddedContainerd": {
                "enabled": True,
                "bridge": self._bridge,
                "podCIDR": self._subnet,
                "defaultRuntime": chosen_handler(),
            }
        }
        if self.docker is not None:
            runtime = {"docker": {"enabled": True, **self.docker.section()}}
        documents = [kubelet, {**own, **({} if self._containerd else runtime)}]
        (self.home.path / "kubelet.yaml").write_text(yaml.safe_dump_all(documents))
        arguments = [f"--config={self.home.path}/kubelet.yaml", f"--hostname-override={NODE}", *self._flags]
        (self.home.path / "kubelet.args").write_text(" ".join(arguments) + "\n")

    async def start(self) -> None:
        """Start supervisord and wait until all seven beat and the runtime answers with its images."""
        began = time.monotonic()
        self.start_supervisord()
        if self._bus is None:
            self._bus = ProcessBus("test", new_manifest(self.home.run_dir))
            self._bus.on_beat(lambda beat: self.beats.update({beat.service: beat}))
            await self._bus.start()
        await self.wait_beats(*SERVICES, after=began, seconds=2 * WAIT_SECONDS)
        if self._containerd is None and self.docker is None:
            await self.wait_for(lambda: answers(self.containerd_socket), "the embedded containerd to answer")
            await self.import_images((BUSYBOX_CONTENT, PAUSE_CONTENT))
            self._ran = self._ran or ran_versions.begin_node(self.containerd_socket)

    def start_supervisord(self) -> None:
        """Start supervisord alone; the services follow by themselves."""
        environment = {**os.environ, **KEPT_MACHINE, "CRASH_AT": f"@{self._crash_file}", **self._environment}
        environment["BULKHEAD_HOME"] = str(self.home.path)
        command = [str(BIN / "supervisord"), "-n", "-s", "-c", str(self.home.supervisord_conf)]
        if self._supervisord is not None:
            self._supervisord.wait()  # a killed one before this one
        console = DrainedConsole(self.home.console)
        try:
            self._supervisord = start_supervisord(
                command, environment, console.writer, console.writer, preloaded=self.preloaded
            )
        finally:
            console.close_writer()

    async def stop_supervisord(self, seconds: float = WAIT_SECONDS) -> int:
        """Send SIGTERM to supervisord, as an operator does, and wait until it and all services have ended. Return its
        exit code."""
        process = self._require_supervisord()
        process.terminate()
        return await asyncio.wait_for(asyncio.to_thread(process.wait), seconds)

    async def _take_down(self, *, failed: bool) -> None:
        evidence.live.discard(self.home.path)
        while self._ran:
            ran_versions.end_use(self._ran.pop())
        if failed:
            print(evidence.show(self.home.path, evidence.of_running_test()), file=sys.stderr)
        if self._bus is not None:
            await self._bus.stop()
        leftovers.end_agent(self.home.path)
        if self._supervisord is not None:
            self._supervisord.wait()
        if self._containerd is not None:
            await remove_pods(self._containerd.endpoint)
        if self.docker is not None:
            await asyncio.to_thread(self.docker.stop)
        await clean(self.home.path)
        leftovers.remove_empty_cgroups(self.home.path.name)

    # Processes

    @property
    def port(self) -> int:
        """Return the port of the agent's HTTPS API."""
        return self._port

    @property
    def supervisord_pid(self) -> int:
        return self._require_supervisord().pid

    def pid_of(self, service: str) -> int:
        """Return the process id of one of the seven services, or of the embedded containerd itself; 0 while it does not
        run."""
        if service == "containerd":
            return find_containerd(f"{self.home.run_dir}/containerd/config.toml")
        return ServiceLock(self.home.run_dir, service).holder() or 0

    def kill(self, service: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send the signal to one of the seven services, `containerd` or `supervisord`, and return the process id it
        had; after SIGSTOP it is stopped."""
        pid = self.supervisord_pid if service == "supervisord" else self.pid_of(service)
        assert pid, f"{service} does not run"
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            wait_stopped(pid)
        return pid

    def reset_start_counts(self) -> None:
        """Let the next start of any service count as its first: a test that kills many times measures no back-off."""
        for path in (self.home.run_dir / "locks").glob("*.lock"):
            if not (data := path.read_bytes()):
                continue  # the first process of the service has made the file, and not written to it yet
            record = json.loads(data)
            with path.open("r+b") as file:
                file.write(json.dumps({**record, "starts": []}).encode().ljust(path.stat().st_size - 1) + b"\n")

    def crash_at(self, point: str) -> None:
        """Let the next process that reaches this crash point end there by SIGKILL, once."""
        scratch = self._crash_file.with_suffix(".new")
        scratch.write_text(point)
        scratch.rename(self._crash_file)

    @property
    def crashed(self) -> bool:
        """Return whether the crash point of the last `crash_at` was reached."""
        return not self._crash_file.exists()

    def supervisorctl(self, *words: str) -> str:
        """Return what supervisorctl prints."""
        command = [str(BIN / "supervisorctl"), "-c", str(self.home.supervisord_conf), *words]
        return subprocess.run(command, capture_output=True, check=False, text=True, timeout=WAIT_SECONDS).stdout

    async def wait_back(self, service: str, old_pid: int, seconds: float = WAIT_SECONDS) -> Beat:
        """Wait until the service runs as another process than `old_pid` and has sent a beat; return that beat."""

        def back() -> Beat | None:
            beat = self.beats.get(service)
            return beat if beat is not None and beat.pid not in (0, old_pid) else None

        return await self.wait_for(back, f"{service} to come back", seconds)

    async def wait_beats(self, *services: str, after: float | None = None, seconds: float = WAIT_SECONDS) -> None:
        """Wait until each service has sent a beat after the given CLOCK_MONOTONIC time (default: now)."""
        moment = time.monotonic() if after is None else after

        def silent() -> list[str]:
            return [name for name in services if name not in self.beats or self.beats[name].sent_at <= moment]

        await self.wait_for(lambda: not silent(), lambda: f"beats of {', '.join(silent())}", seconds)

    # Waits and evidence

    @overload
    async def wait_for(
        self, look: Callable[[], Awaitable[T | None]], what: str | Callable[[], str], seconds: float = WAIT_SECONDS
    ) -> T: ...

    @overload
    async def wait_for(
        self, look: Callable[[], T | None], what: str | Callable[[], str], seconds: float = WAIT_SECONDS
    ) -> T: ...

    async def wait_for(
        self, look: Callable[[], Any], what: str | Callable[[], str], seconds: float = WAIT_SECONDS
    ) -> Any:
        """Return the first truthy result of `look`. Raises AssertionError, which names `what`, when there is none in
        time."""
        began = time.monotonic()
        while True:
            seen = look()
            value = await seen if inspect.isawaitable(seen) else seen
            if value:
                return value
            waited = time.monotonic() - began
            if waited > seconds:
                raise AssertionError(f"waited {seconds} s for {what if isinstance(what, str) else what()}")
            await asyncio.sleep(pause_after(waited))

    # The runtime

    async def import_images(self, images: Iterable[Image]) -> None:
        """Make these images from busybox, and put them into the agent's runtime."""
        if self.docker is not None:
            await asyncio.to_thread(self.docker.load_images, images)
        elif self._containerd is not None:
            await asyncio.to_thread(self._containerd.import_images, images)
        else:
            await asyncio.to_thread(import_images, self.containerd_socket, self.home.path, images)

    @property
    def netns(self) -> Path:
        """Return the directory in which the network namespaces of pods have names."""
        return self.docker.directory / "run" / "netns" if self.docker is not None else Path("/run/netns")

    def stops(self) -> dict[str, Stop]:
        """Return how the runtime stopped each container first, by container id."""
        if self.docker is not None:
            return stops_of_docker(self.docker.log)
        log = self._containerd.log if self._containerd else self.home.log_dir / "containerd.out"
        return stops_of_containerd(log)

    def log_of(self, service: str) -> str:
        """Return the service's log so far."""
        path = self.home.log_dir / f"{service}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def tail_of_logs(self, lines: int = 25) -> str:
        """Return the end of every log."""
        return evidence.tail_of_logs(self.home.log_dir, lines)

    @property
    def endpoint(self) -> str:
        if self.docker is not None:
            return f"unix://{self.home.run_dir}/dockershim/dockershim.sock"
        return self._containerd.endpoint if self._containerd else f"unix://{self.containerd_socket}"

    @property
    def containerd_socket(self) -> str:
        return f"{self.home.run_dir}/containerd/containerd.sock"

    @property
    def _crash_file(self) -> Path:
        return self.home.path / "crash"

    def _require_supervisord(self) -> "subprocess.Popen[bytes] | Preloaded":
        assert self._supervisord is not None, "supervisord was not started"
        return self._supervisord
