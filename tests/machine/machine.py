"""A Debian of its own that a test boots in seconds: another kernel, cgroup v2 alone, systemd as process 1. Commands run
in there; its disk outlives a reboot and a power cut. A machine that ends, hangs or does not boot fails the test with
the end of its console."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar

from tests.machine.guest import Guest, MachineError
from tests.machine.network import MachineNetwork
from tests.machine.power import Hardware, PowerOn
from tests.machine.root import Root, cached_root
from tests.support.installed import ran_versions
from tests.support.machines.installed_node import CONTAINERD, IMAGES, LOGIN, InstalledNode
from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import archive, read_busybox

T = TypeVar("T")

_BOOT_SECONDS = 10 * WAIT_SECONDS  # at most; one that shows nothing for guest.QUIET_SECONDS has failed before
_MAX_COMMAND_SECONDS = 20 * WAIT_SECONDS  # `apt install` on a bare root took 600 beside much other work


class Machine(InstalledNode):
    """`with Machine(directory) as machine:`, a new directory, which keeps the consoles and loses the disk.

    `shared` is a directory out here that is /host in there, read-only. `network`: that of another machine, to be beside
    it; else one of its own. `options`: further ones of the kernel's command line. `shown`: further directories out
    here that are below /host in there, by their name.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "machine",
        network: MachineNetwork | None = None,
        root: Root | None = None,
        options: tuple[str, ...] = (),
        shown: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.shared = directory / "host"
        for place in (self.shared, *(self.shared / name for name in shown)):
            place.mkdir()
        self._directory, self._name, self._network, self._options = directory, name, network, options
        self._root, self._shown = root, shown
        self._stack = ExitStack()
        self._hardware: Hardware | None = None
        self._power: PowerOn | None = None
        self._guest: Guest | None = None
        self._power_ons = 0
        self.boot_id = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            network = self._network or stack.enter_context(MachineNetwork())
            address, root = network.next_address(self._name), self._root or cached_root()
            disk = stack.enter_context(_copy_of(root, self._directory))
            stack.callback(self._switch_off)
            self._hardware = Hardware(root, disk, self.shared, network, address, self._options, self._shown)
            self._switch_on()
            self._stack = stack.pop_all()
        for ran in ran_versions.parse_machine(self.must("sh", "-c", ran_versions.MACHINE_SCRIPT)):
            self._stack.callback(ran_versions.end_use, ran_versions.begin_use(*ran))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def ip(self) -> str:
        """Its address in its network."""
        assert self._hardware is not None
        return self._hardware.address.ip

    @property
    def power(self) -> PowerOn:
        """The power-on that lasts."""
        assert self._power is not None
        return self._power

    def call(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in there as a login of root would, without a terminal."""
        return self.run(*command, seconds=_MAX_COMMAND_SECONDS, **environment)

    def run(self, *command: str, seconds: float, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in there as `call` does, for so many seconds at most."""
        variables = [*LOGIN, "DEBIAN_FRONTEND=noninteractive", *(f"{k}={v}" for k, v in environment.items())]
        guest = self._guest
        assert guest is not None, "the machine is switched off"
        return self._with_console(lambda: guest.run(("env", "-i", *variables, *command), seconds))

    def last_lines(self) -> str:
        """The end of the journal of this boot."""
        return self.call("journalctl", "--boot", "--no-pager", "--lines=80").stdout

    def wait_until(self, condition: str) -> None:
        """Wait in there, for `within` twice, until a condition of the shell holds: the one processor stays free for
        what is waited for. MachineError where it does not."""
        self.run("sh", "-c", f"until {condition}; do sleep 1; done", seconds=2 * self.within)

    def write(self, path: str, text: str, mode: str = "0644") -> None:
        """Write a file in there, and its directories."""
        (self.shared / "written").write_text(text)
        self.must("install", "-D", f"--mode={mode}", "/host/written", path)

    def import_images(self, socket: str = CONTAINERD) -> None:
        """See InstalledNode. `socket`: of the containerd in there."""
        for number, image in enumerate(IMAGES):
            (self.shared / f"image-{number}.tar").write_bytes(archive(image, *read_busybox()))
            self.must("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import",
                      f"/host/image-{number}.tar")  # fmt: skip

    def reboot(self) -> None:
        """Shut down as `systemctl reboot` does, and boot again, until it answers. The kernel is another process then:
        one that starts itself again keeps its end of the network open, and cannot open it again."""
        self.shut_down()
        self.boot()

    def shut_down(self, *meanwhile: str) -> None:
        """Shut down by `systemctl poweroff`. `meanwhile`: a command that runs in there once that has been said."""
        guest = self._guest
        assert guest is not None
        guest.start(("systemctl", "poweroff"))
        if meanwhile:
            self.must(*meanwhile)
        self._with_console(lambda: guest.wait_for_end(_BOOT_SECONDS))
        self._switch_off()

    def boot(self) -> None:
        """Switch on a machine that is off, until it answers."""
        before = self.boot_id
        self._switch_on()
        assert self.boot_id != before

    def soft_reboot(self) -> None:
        """Start all programs again by `systemctl soft-reboot`, without another boot, until it answers."""
        guest = self._guest
        assert guest is not None
        guest.start(("systemctl", "soft-reboot"))
        assert self._with_console(lambda: guest.wait_for_boot(_BOOT_SECONDS)) == self.boot_id

    def cut(self) -> None:
        """End the machine by SIGKILL, and switch it on again, until it answers."""
        self._switch_off()
        self.boot()

    def _switch_on(self) -> None:
        assert self._hardware is not None
        self._power_ons += 1
        power = self._power = PowerOn(self._hardware, self._directory / f"power-on-{self._power_ons}")
        guest = self._guest = Guest(power.line, power.progress)
        self.boot_id = self._with_console(lambda: guest.wait_for_boot(_BOOT_SECONDS))

    def _switch_off(self) -> None:
        if self._power is not None:
            self._power.__exit__()
        self._power = self._guest = None

    def _with_console(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except MachineError as error:
            shown = self._power.tail() if self._power is not None else ""
            raise MachineError(f"{error}; the console's end:\n{shown}") from error


@contextmanager
def _copy_of(root: Root, directory: Path) -> Iterator[int]:
    """The disk of a machine, as a descriptor: a file of that directory without a name, of which nothing is left when
    the last process that has it open has ended. AssertionError where there is no room for it."""
    with tempfile.TemporaryFile(dir=directory) as file:
        command = ["cp", "--sparse=always", "--reflink=auto", str(root.disk), f"/proc/self/fd/{file.fileno()}"]
        done = subprocess.run(command, pass_fds=[file.fileno()], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"no disk for a machine: {done.stderr}"
        yield file.fileno()
