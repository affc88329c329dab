"""This machine again, as one where only Debian's packages are installed: an overlay of its root with systemd as
process 1 and a network of its own. Checkout and home directory are hidden. What is installed in there ends with it."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.systemd_machine import SystemdMachine
from tools.containerd import import_images
from tools.home import CHECKOUT
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_COMMAND, Image

PAUSE = Image(name="registry.k8s.io/pause:3.10", command=PAUSE_COMMAND)  # that of the package's kubelet.yaml

# The environment of a login of root.
LOGIN = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8")
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


class InstalledMachine(SystemdMachine):
    """`with InstalledMachine(directory) as machine:`; the directory is visible in there, at the same path."""

    namespaces = "--net"

    def root_script(self) -> str:
        """Commands that make the overlay the root."""
        scratch = self.directory / "overlay"
        scratch.mkdir()
        hidden = f"{CHECKOUT} {Path.home()}"
        return _ROOT.format(scratch=scratch, directory=self.directory, hidden=hidden)

    def inside(self, *command: str) -> list[str]:
        """The command line that runs a command in there, in its network, too."""
        return ["nsenter", "-t", str(self.pid), "-n", *super().inside(*command)]

    def call(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in there as a login of root would, without a terminal."""
        return self.captured(*self.login(*command, **environment))

    def login(self, *command: str, **environment: str) -> list[str]:
        """The command line that runs a command in there with the environment of a login of root."""
        variables = [*LOGIN, "DEBIAN_FRONTEND=noninteractive", *(f"{k}={v}" for k, v in environment.items())]
        return self.inside("env", "-i", *variables, *command)

    @staticmethod
    def captured(*command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command out here, with nothing to read; its output."""
        return subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=600
        )

    def must(self, *command: str, **environment: str) -> str:
        """The same; standard output. AssertionError with all output where it fails."""
        done = self.call(*command, **environment)
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.log.read_text(errors="replace")[-4000:])
        return done.stdout

    def json(self, *command: str) -> Any:
        """What a command in there prints as JSON."""
        return json.loads(self.must(*command))

    @property
    def containerd(self) -> str:
        """The address of the containerd of the package's configuration."""
        return str(self.path("/run/bulkhead/containerd/containerd.sock"))

    def import_images(self) -> None:
        """Bring in what the pods of `add_pod` need."""
        import_images(self.containerd, self.directory, (PAUSE, BUSYBOX_CONTENT))

    def add_pod(self, name: str) -> None:
        """Write the manifest of a pod that runs until it is stopped."""
        container = {"name": "c", "image": BUSYBOX_CONTENT.name, "command": ["sleep", "100000"]}
        spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.path(f"/etc/bulkhead/manifests/{name}.json").write_text(json.dumps(pod))

    def states(self) -> dict[str, str]:
        """The state of each pod, as `bulkhead pods` shows it."""
        return {row["name"]: row["state"] for row in self.json("bulkhead", "pods", "-o", "json")}

    def tasks(self) -> set[str]:
        """The id and the process of each running container and sandbox."""
        command = ["ctr", "--address", self.containerd, "--namespace", "k8s.io", "tasks", "ls"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return {" ".join(line.split()) for line in lines[1:] if "RUNNING" in line}

    def processes(self) -> set[str]:
        """The ids of all processes in there."""
        return {name for name in self.must("ls", "/proc").split() if name.isdecimal()}

    def path(self, inside: str) -> Path:
        """A path in there as it is reached from out here."""
        return Path(f"/proc/{self.pid}/root{inside}")
