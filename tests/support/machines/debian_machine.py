"""A Debian of its own, of the smallest set of its packages and systemd, booted in namespaces with the units that it
enables. Its root is a directory, which outlives a reboot. Only apt reaches the network of this machine."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

from tests.support.machines.installed_machine import InstalledMachine
from tests.support.machines.installed_node import LOGIN
from tests.support.machines.systemd_machine import SystemdMachine
from tests.support.waits.deadline import WAIT_SECONDS

PACKAGES = ("dbus", "systemd", "systemd-sysv")
_DEVICES = "null zero full random urandom tty fuse kmsg"
_ROOT = """\
mount --bind {root} {root}
cd {root}
for part in proc sys; do mount --rbind /$part $part; done
mount -t tmpfs -o mode=755 tmpfs dev
for node in {devices}; do
  if [ -e /dev/$node ]; then touch dev/$node; mount --bind /dev/$node dev/$node; fi
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for number in 0,stdin 1,stdout 2,stderr; do ln -s fd/${{number%,*}} dev/${{number#*,}}; done
ip link set lo up
pivot_root . mnt
cd /
umount -l /mnt
"""
# The kernel gives all namespaces one id of the boot.
_LAST = """\
cat /proc/sys/kernel/random/uuid > /run/boot-id
mount --bind /run/boot-id /proc/sys/kernel/random/boot_id
"""


def make_root(root: Path, suite: str) -> None:
    """Install Debian into a new directory, from package sources. AssertionError where that fails."""
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite]
    done = subprocess.run([*command, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (root / "etc/hostname").write_text("bare\n")
    # Like `sleep`, what runs in a pod may ignore SIGTERM: systemd waits that long for it.
    (root / "etc/systemd/system.conf.d").mkdir()
    (root / "etc/systemd/system.conf.d/test.conf").write_text("[Manager]\nDefaultTimeoutStopSec=10\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")  # for apt, in the network of this machine


class DebianMachine(InstalledMachine):
    """A machine of `with DebianMachine(directory) as machine:`; `directory/root` is what `make_root` has made."""

    options = ""

    @property
    def root(self) -> Path:
        """Return its root directory, as a path out here."""
        return self.directory / "root"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            print(self.call("journalctl", "--boot", "--no-pager", "--lines=200").stdout)
        super().__exit__(kind, error, trace)

    def root_script(self) -> str:
        """Return the commands that make its directory the root."""
        return _ROOT.format(root=self.root, devices=_DEVICES)

    def last_script(self) -> str:
        """Return the commands for a boot of its own, as an agent recognises it."""
        return _LAST

    def apt(self, *arguments: str) -> str:
        """Run apt-get in there, with the network of this machine; return both outputs. Raises AssertionError where it
        fails."""
        command = ("env", "-i", *LOGIN, "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes", *arguments)
        done = self.captured(*SystemdMachine.inside(self, *command))
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def answered(self, question: str, answer: str, *command: str) -> str:
        """Run a command in there on a terminal, answer its question, and return what the terminal shows."""
        script = ("script", "--quiet", "--return", f"--command={' '.join(command)}", "/dev/null")
        line = self.inside("env", "-i", *LOGIN, "TERM=dumb", *script)
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as terminal:
            assert terminal.stdin is not None and terminal.stdout is not None
            shown = b""
            while question.encode() not in shown:
                read = terminal.stdout.read(4096)
                assert read, (command, shown)
                shown += read
            terminal.stdin.write(f"{answer}\n".encode())
            while read := terminal.stdout.read(4096):
                shown += read
        assert terminal.returncode == 0, (command, shown)
        return shown.decode()

    def reboot(self) -> None:
        """Run `systemctl reboot`, and wait until systemd is on its bus again. What only memory had is gone."""
        assert self._process is not None
        self.call("systemctl", "reboot")
        self._process.wait(timeout=3 * WAIT_SECONDS)
        self.pid = 0
        self.stop()  # the cgroups, too: a machine begins without any
        self.start()

    def cut(self) -> None:
        """End all processes at once, as a power cut does, and boot again. Of the files that a program has written
        without fsync, only the names are kept: so of those of libcni."""
        self.stop()
        for file in (self.root / "var/lib/cni/results").iterdir():
            written = file.stat().st_mtime_ns
            os.truncate(file, 0)
            os.utime(file, ns=(written, written))
        self.start()
