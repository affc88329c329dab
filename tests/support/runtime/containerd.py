"""A containerd for tests: own root, state, socket, bridge and subnet in one directory, configured as the embedded one.

Several may run side by side. `stop` takes down every pod it still has and leaves nothing of it on the machine.
"""

import asyncio
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from services.bootstrap.adapters import containerd_host
from services.bootstrap.core.containerd_config import render_config, render_network
from shared.config.effective import EmbeddedContainerd
from tests.support.agents.reservations import Reservations
from tests.support.installed import ran_versions
from tests.support.installed.chosen_programs import chosen_handler
from tools import containerd, leftovers
from tools.clean import remove_pods
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_CONTENT, Image

_numbers = itertools.count()
_reserved = Reservations("network", most=10)  # it has no bridge before its first pod


def network_of_our_own() -> tuple[str, str]:
    """Return a bridge name and a pod network that no other test of this or another run on the machine has."""
    taken = {path.name for path in Path("/sys/class/net").iterdir()}
    for number in itertools.count(os.getpid() % 199 + next(_numbers)):
        bridge = f"bkt{os.getpid() % 100000}x{number % 200}"
        if any(name.startswith("bkt") and name.endswith(f"x{number % 200}") for name in taken):
            continue
        if _reserved.reserve(number % 200):
            return bridge, f"10.91.{number % 200}.0/24"
    raise AssertionError("unreachable")


class PrivateContainerd:
    """One containerd process below `directory`, which must be short enough for its sockets. `programs`: where another
    containerd than the installed one is, with its shim (tools/newer-containerd)."""

    def __init__(self, directory: Path, programs: str = "") -> None:
        bridge, subnet = network_of_our_own()
        self.directory = directory
        self.log = directory / "containerd.log"
        self._programs = programs
        self.embedded = EmbeddedContainerd(
            path=f"{programs}/containerd" if programs else "containerd",
            root=str(directory / "root"),
            state=str(directory / "state"),
            socket=str(directory / "c.sock"),
            config_file=str(directory / "config.toml"),
            cni_conf_dir=str(directory / "cni"),
            bridge=bridge,
            pod_cidr=subnet,
            default_runtime=chosen_handler(),
            registry_config_path=str(directory / "certs.d"),
        )
        self.further_config = ""  # TOML that follows the configuration of the embedded one
        self._process: subprocess.Popen[bytes] | None = None
        self._ran: list[ran_versions.Ran] = []

    @property
    def endpoint(self) -> str:
        return f"unix://{self.embedded.socket}"

    @property
    def pid(self) -> int:
        """Return the process id of the running containerd."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start containerd, another time if need be, and wait until it answers."""
        facts = containerd_host.look(self.embedded)
        cni = Path(self.embedded.cni_conf_dir)
        cni.mkdir(exist_ok=True)
        config_text = render_config(self.embedded, facts, systemd_cgroup=False)
        Path(self.embedded.config_file).write_text(config_text + self.further_config)
        (cni / "10-bulkhead.conflist").write_text(render_network(self.embedded, facts))
        self._process = containerd.start(self.embedded, self.log, self._programs)
        self._ran = self._ran or ran_versions.begin_node(self.embedded.socket)

    def import_images(self, images: Iterable[Image] = (BUSYBOX_CONTENT, PAUSE_CONTENT)) -> None:
        """Make these images from busybox and import them."""
        containerd.import_images(self.embedded.socket, self.directory, images)

    def end(self) -> None:
        """End the process only; its pods continue."""
        while self._ran:
            ran_versions.end_use(self._ran.pop())
        if self._process is not None:
            leftovers.end_processes([self._process.pid])
            self._process.wait()
            self._process = None

    async def stop(self) -> None:
        """Stop the pods and the process, and remove what is outside of the directory. The directory itself is the
        caller's."""
        if self._process is not None and self._process.poll() is None:
            await remove_pods(self.endpoint)
        self.end()
        leftovers.end_containers(Path(self.embedded.state))
        leftovers.end_processes(leftovers.shims_of(self.directory))
        leftovers.unmount_below(self.directory)
        leftovers.remove_network(self.embedded.bridge)


@contextmanager
def started_containerd() -> Iterator[PrivateContainerd]:
    """Give the block a containerd that runs with the images of `import_images`, in a new directory."""
    with tempfile.TemporaryDirectory(prefix="bkc", dir="/tmp") as directory:
        made = PrivateContainerd(Path(directory))
        try:
            made.start()
            made.import_images()
            yield made
        finally:
            asyncio.run(made.stop())
