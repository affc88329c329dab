"""A systemd of our own as process 1 of its own namespaces, with a system bus: where the driver `systemd` is tried.

Its control groups are the part of this machine's below one directory of each hierarchy, so that from here they can be
looked at, and changed, as files. Nothing of it outlives `stop`. Knows nothing of pods.
"""

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from shared.host import cgroup_layout
from shared.host.cgroup_layout import Hierarchies
from tests.support.installed.lacking import lack
from tests.support.waits.deadline import WAIT_SECONDS
from tools import leftovers

SYSTEMD = Path("/lib/systemd/systemd")
KERNEL_SETTINGS = {  # at each boot, by the path below /proc/sys
    "vm/overcommit_memory": 0,
    "vm/panic_on_oom": 0,
    "kernel/panic": 0,
    "kernel/panic_on_oops": 0,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
_TARGET = "[Unit]\nDefaultDependencies=no\nWants=dbus.socket\n"
_SOCKET = "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=/run/dbus/system_bus_socket\n"
_SERVICE = """\
[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
Type=notify
NotifyAccess=main
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation --syslog-only
"""
_OUTSIDE = """\
set -e
for tree in {trees}; do
  mkdir -p $tree/{name}
  if [ -f $tree/cpuset.cpus ]; then
    cat $tree/cpuset.cpus > $tree/{name}/cpuset.cpus; cat $tree/cpuset.mems > $tree/{name}/cpuset.mems
  fi
  echo $$ > $tree/{name}/cgroup.procs
done
exec unshare --cgroup --mount --pid --uts --ipc {namespaces} --fork --kill-child --propagation slave bash {inside}
"""
# What systemd would set for the whole machine is read-only; network settings are the network's, which is shared. The
# settings that an agent changes are files of its own, with the values of a Debian.
_INSIDE = """\
set -e
{root}
mount -t proc proc /proc
for part in /proc/sys/kernel /proc/sys/fs /proc/sys/vm; do
  mount --bind $part $part; mount -o remount,bind,ro $part
done
mount -t tmpfs tmpfs /run
mkdir /run/kernel-settings
while read -r setting value; do
  if [ -e /proc/sys/$setting ]; then
    echo $value > /run/kernel-settings/${{setting##*/}}
    mount --bind /run/kernel-settings/${{setting##*/}} /proc/sys/$setting
  fi
done << END
{settings}
END
umount -R /sys/fs/cgroup
{mounts}
mkdir -p /run/systemd/system /run/dbus
{last}
exec env -i PATH="$PATH" container=test {systemd} --system --show-status=no {options}
"""


class SystemdMachine:
    """A machine of `with SystemdMachine(directory) as machine:`; the directory has a short path, because what runs
    inside puts sockets there."""

    namespaces = ""  # more of them, as options of unshare
    options = "--unit=test.target --log-target=console"  # of systemd

    def __init__(self, directory: Path) -> None:
        for needed in (SYSTEMD, Path("/usr/bin/dbus-daemon"), Path("/usr/bin/nsenter")):
            if not needed.exists():
                lack(f"{needed} is not installed (apt-get install systemd dbus util-linux)")
        self.directory = directory
        self.name = f"bkt-systemd-{os.getpid()}-{directory.name}".replace("_", "-")
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bus_address(self) -> str:
        """Return the address of the system bus, as it is reached from out here."""
        return f"unix:path=/proc/{self.pid}/root/run/dbus/system_bus_socket"

    @property
    def hierarchies(self) -> Hierarchies:
        """Return its cgroups, as they are seen from out here."""
        ours = cgroup_layout.find_hierarchies()
        return Hierarchies(
            unified=ours.unified and ours.unified / self.name,
            by_controller={controller: root / self.name for controller, root in ours.by_controller.items()},
            beside=ours.beside and ours.beside / self.name,
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            print(self.log.read_text(errors="replace"))
        self.stop()

    @property
    def log(self) -> Path:
        """Return the journal of systemd and its units."""
        return self.directory / "systemd.log"

    def start(self) -> None:
        """Boot it and wait until systemd is on its bus."""
        ours = cgroup_layout.find_hierarchies()
        trees = [*ours.roots(), *([ours.beside] if ours.beside else [])]
        inside = self.directory / "inside.sh"
        inside.write_text(
            _INSIDE.format(
                root=self.root_script(),
                settings="\n".join(f"{setting} {value}" for setting, value in KERNEL_SETTINGS.items()),
                mounts=_mounts(ours),
                last=self.last_script(),
                systemd=SYSTEMD,
                options=self.options,
            )
        )
        outside = _OUTSIDE.format(
            trees=" ".join(map(str, trees)), name=self.name, inside=inside, namespaces=self.namespaces
        )
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(["bash", "-c", outside], stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 2 * WAIT_SECONDS
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"systemd did not boot: {self.log.read_text(errors='replace')}")
            time.sleep(0.05)

    def _is_up(self) -> bool:
        assert self._process is not None
        try:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            if not children or Path(f"/proc/{children[0]}/comm").read_text().strip() != "systemd":
                return False
        except OSError:  # a child of the script before it
            return False
        self.pid = int(children[0])
        asked = self.inside("busctl", "get-property", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                            "org.freedesktop.systemd1.Manager", "Version")  # fmt: skip
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def root_script(self) -> str:
        """Return the commands that run before anything else is mounted in there: a root of its own, in a subclass."""
        return ""

    def last_script(self) -> str:
        """Return the commands that run just before systemd: its units, a system bus and no more."""
        units = self.directory / "units"
        units.mkdir()
        for name, text in (("test.target", _TARGET), ("dbus.socket", _SOCKET), ("dbus.service", _SERVICE)):
            (units / name).write_text(text)
        return f"cp {units}/* /run/systemd/system/"

    def inside(self, *command: str) -> list[str]:
        """Return the command line that runs a command in there."""
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-C", "--", *command]

    def joined(self, *command: str) -> list[str]:
        """Return the command line for a command that starts containers: it begins in a cgroup that exists in there."""
        tops = [str(path) for path in self.hierarchies.places("/")]
        join = f'for top in {" ".join(tops)}; do echo $$ > $top/cgroup.procs; done; exec "$@"'
        return ["bash", "-c", join, "bash", *self.inside(*command)]

    def run(self, *command: str) -> str:
        """Return what a command in there prints. Raises CalledProcessError where it fails."""
        return subprocess.run(self.inside(*command), capture_output=True, text=True, check=True).stdout

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Return the unit's properties as systemctl prints them."""
        wanted = [f"--property={name}" for name in properties]
        lines = self.run("systemctl", "show", *wanted, unit).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def stop(self) -> None:
        """Kill process 1 and with it everything in there; then remove its cgroups."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
        elif self._process is not None:
            self._process.kill()
        if self._process is not None:
            self._process.wait()
        self.pid = 0
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            leftovers.remove_empty_cgroups(self.name)
            if not list(leftovers.CGROUPS.glob(f"*/{self.name}")) and not (leftovers.CGROUPS / self.name).exists():
                return
            time.sleep(0.05)
        raise AssertionError(f"cgroups {self.name} stay")


def _mounts(ours: Hierarchies) -> str:
    """Mount the same hierarchies again, which now begin at our directory."""
    if ours.unified is not None:
        return f"mount -t cgroup2 cgroup2 {ours.unified}"
    lines = ["mount -t tmpfs tmpfs /sys/fs/cgroup"]
    together: dict[Path, list[str]] = {}
    for controller, root in ours.by_controller.items():
        together.setdefault(root, []).append("none,name=systemd" if controller == "systemd" else controller)
    for root, controllers in together.items():
        lines.append(f"mkdir -p {root}; mount -t cgroup -o {','.join(controllers)} cgroup {root}")
    if ours.beside is not None:
        lines.append(f"mkdir -p {ours.beside}; mount -t cgroup2 cgroup2 {ours.beside}")
    return "\n".join(lines)
