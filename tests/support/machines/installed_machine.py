"""This machine again, as one where only Debian's packages are installed: an overlay of its root with systemd as
process 1 and a network of its own. Checkout and home directory are hidden. What is installed in there ends with it."""

import subprocess
from pathlib import Path

from tests.support.machines.installed_node import CONTAINERD, IMAGES, LOGIN, InstalledNode
from tests.support.machines.systemd_machine import SystemdMachine
from tests.support.waits.deadline import WAIT_SECONDS
from tools.containerd import import_images
from tools.home import CHECKOUT

# The units of this machine must not start in there. Only what the package starts is of interest.
_ROOT = """\
mount -t tmpfs -o size=2g tmpfs {scratch}
mkdir {scratch}/upper {scratch}/work {scratch}/root
mount -t overlay -o lowerdir=/,upperdir={scratch}/upper,workdir={scratch}/work overlay {scratch}/root
cd {scratch}/root
for part in proc sys dev; do mount --rbind /$part $part; done
for hidden in {hidden}; do mkdir -p .$hidden; mount -t tmpfs tmpfs .$hidden; done
mkdir -p .{directory}
mount --bind {directory} .{directory}
pivot_root . mnt
cd /
rm -rf /etc/systemd/system/*.wants/ /usr/lib/systemd/system/*.wants/ /lib/systemd/system/*.wants/
: > /etc/fstab
mkdir -p /etc/systemd/system.conf.d
printf '[Manager]\\nDefaultStandardOutput=inherit\\n' > /etc/systemd/system.conf.d/test.conf
rm -f /var/lib/man-db/auto-update /usr/sbin/policy-rc.d
rm -rf /etc/bulkhead /opt/bulkhead /var/lib/bulkhead/* /var/log/bulkhead
# An overlay cannot be the upper layer of another: the snapshots of containers are on a file system of their own.
mkdir -p /var/lib/bulkhead/containerd
mount -t tmpfs tmpfs /var/lib/bulkhead/containerd
ip link set lo up
umount -l /mnt
"""


class InstalledMachine(InstalledNode, SystemdMachine):
    """A machine of `with InstalledMachine(directory) as machine:`; the directory is visible in there, at the same
    path."""

    namespaces = "--net"

    def root_script(self) -> str:
        """Return the commands that make the overlay the root."""
        scratch = self.directory / "overlay"
        scratch.mkdir()
        hidden = f"{CHECKOUT} {Path.home()}"
        return _ROOT.format(scratch=scratch, directory=self.directory, hidden=hidden)

    def inside(self, *command: str) -> list[str]:
        """Return the command line that runs a command in there, in its network, too."""
        return ["nsenter", "-t", str(self.pid), "-n", *super().inside(*command)]

    def call(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in there as a login of root would, without a terminal."""
        line = self.login(*command, **environment)
        return subprocess.run(
            line, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=10 * WAIT_SECONDS
        )

    def login(self, *command: str, **environment: str) -> list[str]:
        """Return the command line that runs a command in there with the environment of a login of root."""
        variables = [*LOGIN, "DEBIAN_FRONTEND=noninteractive", *(f"{k}={v}" for k, v in environment.items())]
        return self.inside("env", "-i", *variables, *command)

    def last_lines(self) -> str:
        """Return the end of the journal of systemd and its units."""
        return self.log.read_text(errors="replace")[-4000:]

    def import_images(self) -> None:
        """Import IMAGES into its containerd."""
        import_images(str(self.path(CONTAINERD)), self.directory, IMAGES)

    def processes(self) -> set[str]:
        """Return the ids of all processes in there."""
        return {name for name in self.must("ls", "/proc").split() if name.isdecimal()}

    def path(self, inside: str) -> Path:
        """Return a path in there as it is reached from out here."""
        return Path(f"/proc/{self.pid}/root{inside}")
