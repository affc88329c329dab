"""A VM that is driven from out here as an operator would: a Debian, a medium with packages, and qemu's guest agent, by
which commands run in there. Its disk outlives a reboot and a power cut."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.installed_node import CONTAINERD, LOGIN, InstalledNode
from tests.vm import image, package_disks
from tests.vm.guest import Guest, GuestError, channel
from tests.vm.qemu import KVM, TCG, PowerOn

_BOOTS_WITHIN: dict[tuple[str, ...], float] = {
    KVM: 120.0,
    TCG: 900.0,
}  # seconds from a power-on, or from `reboot`, to the first answer
_STEP_WITHIN: dict[tuple[str, ...], float] = {KVM: 300.0, TCG: 1200.0}


class EmulatedDebian(InstalledNode):
    """`with EmulatedDebian(base, accelerator, directory) as machine:`; the directory, a new one, keeps the consoles and
    loses the disks."""

    def __init__(self, base: image.Image, accelerator: tuple[str, ...], directory: Path) -> None:
        directory.mkdir()
        self._image, self._accelerator, self._directory = base, accelerator, directory
        self.within = _STEP_WITHIN[accelerator]
        self._root, self._medium = directory / "root.ext4", directory / "medium.ext4"
        self._power_ons = 0
        self._power: PowerOn | None = None
        self._guest = Guest(directory / "agent")

    def __enter__(self) -> Self:
        try:
            image.copy_of_root(self._image, self._root)
            package_disks.medium(self._medium)
            self._switch_on()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def call(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in there as a login of root would, without a terminal."""
        return self._run(*command, **environment)

    def last_lines(self) -> str:
        """The end of the journal of this boot."""
        return self._run("journalctl", "--boot", "--no-pager", "--lines=80").stdout

    def import_images(self) -> None:
        """Bring the images of the medium into its containerd."""
        for file in package_disks.IMAGE_FILES:
            self.must("ctr", "--address", CONTAINERD, "--namespace", "k8s.io", "images", "import", file)

    def reboot(self) -> None:
        """`systemctl reboot`, until another boot answers."""
        before, deadline = self._boot_id(), time.monotonic() + _BOOTS_WITHIN[self._accelerator]
        self._guest.start(("systemctl", "reboot"))
        while True:
            with suppress(GuestError):
                self._wait(deadline - time.monotonic())
                if self._boot_id() != before:
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"no other boot; console:\n{self._tail()}")
            time.sleep(1.0)

    def cut(self) -> None:
        """End qemu without a word to the machine, and switch on again, until it answers."""
        before = self._boot_id()
        self._switch_off()
        self._switch_on()
        assert self._boot_id() != before

    def _run(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        variables = [*LOGIN, "DEBIAN_FRONTEND=noninteractive", *(f"{k}={v}" for k, v in environment.items())]
        try:
            return self._guest.run(("env", "-i", *variables, *command), self.within)
        except GuestError as error:
            raise AssertionError(f"{' '.join(command)}: {error}; console:\n{self._tail()}") from error

    def _boot_id(self) -> str:
        return self._guest.run(("cat", "/proc/sys/kernel/random/boot_id"), 60.0).stdout

    def _switch_on(self) -> None:
        self._power_ons += 1
        logs, disks = self._directory / f"power-on-{self._power_ons}", (self._root, self._medium)
        agent = self._directory / "agent"
        self._power = PowerOn(self._image, self._accelerator, disks, logs, channel(agent)).__enter__()
        try:
            self._wait(_BOOTS_WITHIN[self._accelerator])
        except GuestError as error:
            raise AssertionError(f"{error}; console:\n{self._tail()}") from error

    def _wait(self, seconds: float) -> None:
        power = self._power
        self._guest.wait(lambda: power is not None and not power.ended(), seconds)

    def _switch_off(self) -> None:
        self._guest.close()
        if self._power is not None:
            self._power.__exit__()
        self._power = None

    def _end(self) -> None:
        self._switch_off()
        for disk in (self._root, self._medium):
            disk.unlink(missing_ok=True)

    def _tail(self) -> str:
        return self._power.tail() if self._power is not None else ""
