"""One qemu: started, listened to and killed. Whether KVM works here is found out by booting, for /dev/kvm may lie.

Knows nothing of what runs inside.
"""

import json
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.vm.image import Image

MEMORY_MIB = 1280  # and what qemu needs itself: 1.5 GiB
PROBED_FOR = 30.0  # seconds; a kernel without a root panics after two where KVM works
LOOK_EVERY = 0.2
# It ends with us, however we end.
QEMU = (
    "nice",
    "-n",
    "19",
    "setpriv",
    "--pdeathsig",
    "KILL",
    "qemu-system-x86_64",
    "-nodefaults",
    "-display",
    "none",
    "-smp",
    "1",
)
KVM = ("-accel", "kvm", "-cpu", "host")
TCG = ("-accel", "tcg,tb-size=128", "-cpu", "Nehalem")  # emulated, AVX is slower than none


@cache
def accelerator(image: Image) -> tuple[str, ...]:
    """KVM where a kernel really boots with it, else emulation, which is ten times slower and works everywhere."""
    command = [*QEMU, *KVM, "-m", "256", "-no-reboot", "-serial", "stdio", "-kernel", str(image.kernel),
               "-append", "console=ttyS0 panic=-1"]  # fmt: skip
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PROBED_FOR)
    except subprocess.TimeoutExpired:
        return TCG
    return KVM if done.returncode == 0 and b"Kernel panic" in done.stdout else TCG


class PowerOn:
    """One power-on of a VM; `with` ends it as a power cut does."""

    def __init__(
        self, image: Image, accelerator: tuple[str, ...], disks: Sequence[Path], logs: Path, channel: Sequence[str]
    ) -> None:
        """`disks`: /dev/vda, /dev/vdb, ...; `logs`: a new directory, for console.log and qemu.log; `channel`: qemu's
        options for what its results come through."""
        logs.mkdir()
        self.console, self._output = logs / "console.log", logs / "qemu.log"
        drives = [option for disk in disks for option in ("-drive", f"if=virtio,format=raw,file={disk}")]
        quick = "mitigations=off tsc=reliable quiet systemd.show_status=0"
        append = f"root=/dev/vda rw console=ttyS0 panic=5 net.ifnames=0 {quick}"
        self._command = [*QEMU, *accelerator, "-m", str(MEMORY_MIB), "-kernel", str(image.kernel),
                         "-initrd", str(image.initrd), "-append", append, *drives,
                         "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
                         "-nic", "user,model=virtio-net-pci,restrict=on,ipv6=off",
                         "-serial", f"file:{self.console}", *channel]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def ended(self) -> bool:
        """Whether qemu has ended by itself."""
        assert self._process is not None
        return self._process.poll() is not None

    def tail(self, lines: int = 60) -> str:
        """The end of the console, and of qemu's output."""
        texts = [path.read_text(errors="replace") for path in (self.console, self._output) if path.exists()]
        return "\n".join(line for text in texts for line in text.splitlines()[-lines:])


class Machine(PowerOn):
    """One that sends lines on its second serial port, one JSON object each. `received`: the objects so far."""

    def __init__(self, image: Image, accelerator: tuple[str, ...], root: Path, checkout: Path, logs: Path) -> None:
        """`logs`: a directory of this power-on, for console.log and results.log."""
        self._results = logs / "results.log"
        super().__init__(image, accelerator, (root, checkout), logs, ("-serial", f"file:{self._results}"))
        self._read = 0
        self.received: list[dict[str, Any]] = []

    def next(self, deadline: float) -> dict[str, Any] | None:
        """The next object it sends; None when qemu ended, or time.monotonic() passed `deadline`."""
        while True:
            ended = self.ended()
            text = self._results.read_bytes() if self._results.exists() else b""
            line, end, _ = text[self._read :].partition(b"\n")
            if end:
                self._read += len(line) + 1
                if line.strip().startswith(b"{"):
                    self.received.append(json.loads(line))
                    return self.received[-1]
                continue
            if ended or time.monotonic() > deadline:
                return None
            time.sleep(LOOK_EVERY)
