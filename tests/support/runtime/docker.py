"""A Docker for tests, with the shim before it: own data, socket, containerd, bridge and subnet in one directory.

containerd is a process beside dockerd, as in Debian's units: it goes on when dockerd is killed.
"""

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from services.dockershim.adapters.engine import Engine
from services.dockershim.core.errors import CallError
from services.dockershim.service import DockerShim, Settings
from shared.cri.client import CriRuntime
from shared.model.frozen_copy import replace
from tests.support.installed import ran_versions
from tests.support.installed.debian_containerd import INSTALLED, SUITES, find_programs
from tests.support.runtime.containerd import network_of_our_own
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.stopped import wait_stopped
from tools import leftovers
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_CONTENT, PAUSE_IMAGE, Image, archive, read_busybox

_CNI = "/usr/lib/cni"
_OPTIONS = (
    "--bridge=none",
    "--iptables=false",
    "--ip6tables=false",
    "--exec-opt=native.cgroupdriver=cgroupfs",
    "--debug",
)


class PrivateDocker:
    """One dockerd below `directory`, which must be short enough for its sockets."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bridge, self.subnet = network_of_our_own()
        self.socket, self.shim_socket = directory / "docker.sock", directory / "s" / "shim.sock"
        self.log = directory / "docker.log"
        self.live_restore = False  # of the next start: whether containers outlive a dockerd that ends
        self.agents_endpoint = self.endpoint  # what an agent's configuration names
        self._process: subprocess.Popen[bytes] | None = None
        self._containerd: subprocess.Popen[bytes] | None = None
        self._ran: list[ran_versions.Ran] = []

    @property
    def endpoint(self) -> str:
        """Return where Docker listens."""
        return f"unix://{self.socket}"

    def section(self) -> dict[str, str]:
        """Return the keys of the configuration of an agent that uses it."""
        return {
            "endpoint": self.agents_endpoint,
            "sandboxImage": PAUSE_IMAGE,
            "cniBinDir": _CNI,
            "cniConfDir": str(self.directory / "cni"),
        }

    def settings(self) -> Settings:
        """Return settings of a shim for it."""
        self.shim_socket.parent.mkdir(exist_ok=True)
        return Settings(
            docker_endpoint=self.endpoint,
            socket=self.shim_socket,
            records=self.directory / "records",
            sandbox_image=PAUSE_IMAGE,
            cni_binaries=(_CNI,),
            cni_configurations=self.directory / "cni",
            oom_score_floor=_own_oom_score(),
        )

    def start(self) -> None:
        """Start dockerd, another time if need be, and wait until it answers."""
        cni = self.directory / "cni"
        cni.mkdir(exist_ok=True)
        (cni / "10-bridge.conflist").write_text(json.dumps(self._network()))
        if self._containerd is None:
            # By a relative path: what ends an agent's containerd looks for the agent's home in the arguments.
            self._containerd = self._run("containerd", "--config", self._containerd_configuration().name)
        places = {"data-root": "data", "exec-root": "run", "pidfile": "docker.pid", "containerd": "containerd.sock"}
        options = [f"--{name}={self.directory / place}" for name, place in places.items()]
        options += ["--live-restore"] if self.live_restore else []
        self._process = self._run("dockerd", *options, f"--host={self.endpoint}", *_OPTIONS)
        version = asyncio.run(self._wait_until_it_answers())
        self._ran = self._ran or ran_versions.begin_docker(version)

    def load_images(self, images: Iterable[Image] = (BUSYBOX_CONTENT, PAUSE_CONTENT)) -> None:
        """Make these images from busybox and load them."""

        async def load() -> None:
            engine = Engine(self.endpoint)
            try:
                for image in images:
                    await engine.load(io.BytesIO(archive(image, *read_busybox())))
            finally:
                await engine.close()

        asyncio.run(load())

    @asynccontextmanager
    async def serving(self, **changes: Any) -> AsyncIterator[CriRuntime]:
        """Run a shim in this loop, whose settings have these changes; a client of it is what the caller gets."""
        shim = asyncio.create_task(DockerShim(replace(self.settings(), **changes)).run())
        runtime = CriRuntime(f"unix://{self.shim_socket}", request_timeout=60)
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.shim_socket.exists() and not shim.done():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        try:
            yield runtime
        finally:
            await runtime.close()
            shim.cancel()
            await asyncio.gather(shim, return_exceptions=True)
            self.shim_socket.unlink(missing_ok=True)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to dockerd; after SIGSTOP it is stopped."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            wait_stopped(self._process.pid)

    def kill(self) -> None:
        """SIGKILL dockerd, and wait until it has ended."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End dockerd; containers continue where they can."""
        while self._ran:
            ran_versions.end_use(self._ran.pop())
        _end(self._process)
        self._process = None

    async def _remove_containers(self) -> None:
        engine = Engine(self.endpoint)
        try:
            for listed in await engine.containers([]):
                with suppress(
                    CallError
                ):  # on a busy machine Docker gives up before one has ended; its shim is ended then
                    await engine.remove(listed["Id"])
        finally:
            await engine.close()

    def stop(self) -> None:
        """End everything, and remove what is outside of the directory."""
        if self._process is not None and self._process.poll() is None:
            asyncio.run(self._remove_containers())
        self.end()
        _end(self._containerd)
        leftovers.end_processes(leftovers.shims_of(self.directory))
        leftovers.unmount_below(self.directory)
        leftovers.remove_network(self.bridge)

    async def _wait_until_it_answers(self) -> str:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            engine = Engine(self.endpoint)
            try:
                return str((await engine.version())["Version"])
            except Exception:
                assert self._process is not None and self._process.poll() is None, self.log.read_text()[-3000:]
                assert time.monotonic() < deadline, self.log.read_text()[-3000:]
                await asyncio.sleep(0.1)
            finally:
                await engine.close()

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        path = ":".join(part for part in os.environ["PATH"].split(":") if part not in _newer_containerds())
        program = shutil.which(name, path=path)
        assert program is not None, f"no {name}: install the Debian package docker.io"
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [program, *arguments],
                cwd=self.directory,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "PATH": path},
            )

    def _containerd_configuration(self) -> Path:
        file = self.directory / "containerd.toml"
        places = f'root = "{self.directory}/containerd"\nstate = "{self.directory}/containerd-state"\n'
        socket = f'[grpc]\naddress = "{self.directory}/containerd.sock"\n'
        file.write_text(f'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n{places}{socket}')
        return file

    def _network(self) -> object:
        address = {"type": "host-local", "ranges": [[{"subnet": self.subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
        address["dataDir"] = str(self.directory / "addresses")
        bridge = {"type": "bridge", "bridge": self.bridge, "isGateway": True, "ipMasq": False, "ipam": address}
        return {"cniVersion": "0.4.0", "name": self.bridge, "plugins": [bridge]}


def _newer_containerds() -> list[str]:
    """Return where containerds are that Debian does not ship with this Docker."""
    found = (find_programs(suite) for suite in SUITES if suite != INSTALLED)
    return [directory for directory in found if directory is not None]


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _own_oom_score() -> int:
    """Return the lowest score that a process here may give to its children without CAP_SYS_RESOURCE."""
    return int(Path("/proc/self/oom_score_adj").read_text()) if os.geteuid() == 0 else 0


@contextmanager
def private_docker() -> Iterator[PrivateDocker]:
    """Start a Docker that has the images of the tests, in a temporary directory, and stop it."""
    with tempfile.TemporaryDirectory(prefix="bkd", dir="/tmp") as directory:
        docker = PrivateDocker(Path(directory))
        try:
            docker.start()
            docker.load_images()
            yield docker
        finally:
            docker.stop()
