"""Takes a sample of the machine: what the agent's processes hold and what is there of its pods. Reads only.

Other agents may run on the same machine: everything is found by this one's home, containerd directory and bridge.
"""

import asyncio
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from services.volume.adapters.mounts import mount_table
from shared.cri.client import CriRuntime
from shared.host.address_translation import address_translation
from tests.soak.samples import ProcessSample, Sample
from tests.support.runtime.containerd import PrivateContainerd
from tools.leftovers import CGROUPS, RESULTS, shims_of

NETNS = Path("/run/netns")
# Names with a version, a time or a past pod; their number has its own limit.
_PASSING = re.compile(r"^(log/[^/]+$|run/credentials/|kubelet/bulkhead/podsync/stories/|crash(\.new)?$)")
# containerd kills a CNI plugin whose caller was killed; what the plugin had done by then stays. No kubelet can help it.
_CUT_SHORT = re.compile(r'setup network for sandbox \\+"([0-9a-f]{64})\\+".*signal: killed')
_SOCKET_TABLES = ("unix", "tcp", "tcp6", "udp", "udp6", "netlink", "packet")


class Sampler:
    """`processes`: name -> pid now, 0 for none. `runtime`: a client of that containerd, of our own."""

    def __init__(
        self, home: Path, containerd: PrivateContainerd, processes: Callable[[], Mapping[str, int]], runtime: CriRuntime
    ) -> None:
        self._home, self._containerd, self._processes, self._runtime = home, containerd, processes, runtime
        self._namespaces: set[str] = set()  # that were ever ours: a leaked one is named nowhere any more

    def note_namespaces(self) -> None:
        """Remember which network namespaces are ours; to be called while pods run."""
        bridge = self._containerd.embedded.bridge
        for record in RESULTS.glob(f"{bridge}-*"):
            try:
                self._namespaces.update(re.findall(r"/run/netns/(cni-[^\"/]+)", record.read_text()))
            except OSError:
                continue  # gone meanwhile

    async def take(self) -> Sample:
        """A sample of now."""
        self.note_namespaces()
        pods = await self._runtime.observe()
        sandboxes = [sandbox.id for pod in pods.values() for sandbox in pod.sandboxes]
        containers = [container.id for pod in pods.values() for container in pod.containers]
        things = await asyncio.to_thread(self._things)
        things |= {"CRI sandboxes": frozenset(sandboxes), "CRI containers": frozenset(containers)}
        processes = {name: look_at(pid, self._home) for name, pid in self._processes().items()}
        amounts = {f"bytes in {part}": _bytes_below(self._home / part) for part in ("kubelet", "run", "log/pods")}
        known = {name: process for name, process in processes.items() if process is not None}
        return Sample(time.monotonic(), known, things, amounts)

    def _things(self) -> dict[str, frozenset[str]]:
        directory, embedded = self._containerd.directory, self._containerd.embedded
        below = (f"{self._home}/", f"{directory}/")
        interfaces = Path(f"/sys/class/net/{embedded.bridge}/brif")
        bundles = Path(embedded.state) / "io.containerd.runtime.v2.task/k8s.io"
        rules = address_translation(embedded.bridge)
        cut_short = set(_CUT_SHORT.findall(self._containerd.log.read_text(errors="replace")))
        # A containerd killed between starting a shim and creating its task forgets both: a leak of its own.
        abandoned = {name for name in _names_in(bundles) if not (bundles / name / "init.pid").exists()}
        return {
            "mounts": frozenset(mount.path for mount in mount_table() if mount.path.startswith(below)),
            "network namespaces": frozenset(name for name in self._namespaces if (NETNS / name).exists()),
            "cgroups": frozenset(_cgroups_of(self._home.name)),
            "veths": _names_in(interfaces),
            "NAT rules": frozenset(rule for rule in rules if not any(sandbox in rule for sandbox in cut_short)),
            "CNI results": frozenset(path.name for path in RESULTS.glob(f"{embedded.bridge}-*")),
            "addresses given out": _addresses(Path(embedded.state) / "cni-addresses" / embedded.bridge, cut_short),
            "shims": frozenset(_sandbox_of(shim) for shim in shims_of(directory)) - abandoned,
            "containerd bundles": _names_in(bundles) - abandoned,
            "containerd containers": self._ctr("containers", "list", "-q"),
            "containerd tasks": self._ctr("tasks", "list", "-q"),
            "containerd snapshots": self._ctr("snapshots", "list"),
            "containerd leases": self._ctr("leases", "list", "-q"),
            "files in the home": frozenset(_files_below(self._home)),
            "pod directories": _names_in(self._home / "kubelet/pods"),
        }

    def _ctr(self, *words: str) -> frozenset[str]:
        command = ["ctr", "--address", self._containerd.embedded.socket, "--namespace", "k8s.io", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        lines = [line.split() for line in done.stdout.splitlines()]
        return frozenset(words[0] for words in lines if words and words[0] != "KEY")


def look_at(pid: int, home: Path) -> ProcessSample | None:
    """The process as /proc shows it; None when there is none, or it ends meanwhile."""
    proc = Path(f"/proc/{pid}")
    try:
        sockets = _socket_kinds(proc, home)
        handles: Counter[str] = Counter()
        watches = 0
        for entry in (proc / "fd").iterdir():
            try:
                target = str(entry.readlink())
                if target == "anon_inode:inotify":
                    watches += (proc / "fdinfo" / entry.name).read_text().count("inotify wd:")
            except FileNotFoundError:
                continue  # closed meanwhile
            handles[_kind_of(target, sockets)] += 1
        status = dict(_pairs(proc / "status"))
        memory = dict(_pairs(proc / "smaps_rollup"))
        children = [
            int(child) for task in (proc / "task").iterdir() for child in (task / "children").read_text().split()
        ]
    except (OSError, ValueError):
        return None
    return ProcessSample(
        pid=pid,
        handles=dict(handles),
        threads=int(status["Threads"]),
        watches=watches,
        children=len(children),
        zombies=sum(_is_zombie(child) for child in children),
        rss=_kib(memory, "Rss"),
        pss=_kib(memory, "Pss"),
        anonymous=_kib(memory, "Anonymous"),
    )


def _kind_of(target: str, sockets: Mapping[str, str]) -> str:
    if target.startswith("socket:"):
        return f"socket:{sockets.get(target[8:-1], 'other')}"
    if target.startswith("anon_inode:"):
        return target.removeprefix("anon_inode:").strip("[]")
    return "pipe" if target.startswith("pipe:") else "file"


def _socket_kinds(proc: Path, home: Path) -> dict[str, str]:
    """Inode -> `tcp`, `unix` or, for the bound ends of the services' own sockets, `bus`."""
    kinds: dict[str, str] = {}
    for table in _SOCKET_TABLES:
        for line in (proc / "net" / table).read_text().splitlines()[1:]:
            words = line.split()
            if table == "unix":
                bus = len(words) > 7 and words[7].startswith(f"{home}/run/bus/")
                kinds[words[6]] = "bus" if bus else "unix"
            else:
                kinds[words[9 if table[:3] in ("tcp", "udp") else -1]] = table.rstrip("6")
    return kinds


def _pairs(path: Path) -> list[tuple[str, str]]:
    lines = [line.partition(":") for line in path.read_text().splitlines()]
    return [(name, value.strip()) for name, _, value in lines]


def _kib(memory: Mapping[str, str], name: str) -> int:
    return int(memory[name].split()[0])


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def _addresses(directory: Path, cut_short: set[str]) -> frozenset[str]:
    """Addresses that host-local has given out; each file begins with the id of its sandbox."""
    found = set()
    for name in _names_in(directory):
        try:
            if name[0].isdigit() and not cut_short.intersection((directory / name).read_text().split()[:1]):
                found.add(name)
        except OSError:
            continue  # given back meanwhile
    return frozenset(found)


def _sandbox_of(shim: int) -> str:
    """The id a shim was started with."""
    try:
        words = Path(f"/proc/{shim}/cmdline").read_text().split("\0")
        return words[words.index("-id") + 1]
    except (OSError, ValueError):
        return str(shim)


def _names_in(directory: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in directory.iterdir())
    except OSError:
        return frozenset()


def _cgroups_of(name: str) -> set[str]:
    """Every cgroup at or below the root of this name, in every hierarchy."""
    found: set[str] = set()
    for top in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")):
        if top.is_dir() and not top.parent.is_symlink():
            found.update(str(Path(directory).relative_to(CGROUPS)) for directory, _, _ in os.walk(top))
    return found


def _files_below(home: Path) -> set[str]:
    """Paths of files and directories, relative to the home, as far as they are to be the same again."""
    found: set[str] = set()
    for directory, folders, files in os.walk(home):
        found.update(str((Path(directory) / name).relative_to(home)) for name in (*folders, *files))
    return {path for path in found if not _PASSING.match(path)}


def _bytes_below(directory: Path) -> int:
    """What the files hold, those of stories left out, which are bounded by their number."""
    total = 0
    for folder, _, files in os.walk(directory):
        if folder.endswith("/stories"):
            continue
        for name in files:
            try:
                total += (Path(folder) / name).lstat().st_size
            except OSError:
                continue
    return total
