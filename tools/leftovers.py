"""Finds and removes what an agent with its own home leaves on a machine, by path and by id, never by a broad name.

Knows where processes, mounts, cgroups, bridges and shims contain the home's path. Every function may be repeated."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bus.messages.streams import SERVICES
from services.volume.adapters.mounts import mount_table
from shared.host.address_translation import remove_address_translation

CGROUPS = Path("/sys/fs/cgroup")
RESULTS = Path("/var/lib/cni/results")  # libcni records here what it set up
HOME_MARKER = ".bulkhead-home"


def agent_processes_of(home: Path) -> list[int]:
    """Return supervisord or kubelet, the services and the embedded containerd of the agent with this home, the newest
    first.

    A shell that only exported BULKHEAD_HOME is not returned: its command line names neither the home nor a service."""
    return _processes(home, {"supervisord", "containerd"})


def end_agent(home: Path) -> None:
    """End every process of the agent, including those that its supervisord starts meanwhile."""
    for _ in range(5):
        if not (left := agent_processes_of(home)):
            return
        end_processes(left)


def shims_of(home: Path) -> list[int]:
    """Return the shims of the embedded containerd, which hold the pods and outlive the agent."""
    return _processes(home, {"containerd-shim-runc-v2"}, services=False)


def _processes(home: Path, programs: set[str], *, services: bool = True) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _belongs_to(entry, home, programs, services):
            found.append(int(entry.name))
    return sorted(found, reverse=True)


def _belongs_to(entry: Path, home: Path, programs: set[str], services: bool) -> bool:
    try:
        arguments = [os.fsdecode(argument) for argument in (entry / "cmdline").read_bytes().split(b"\0")]
        environment = (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # the process has ended
    if {Path(argument).name for argument in arguments[:2]} & programs:
        return any(argument.startswith(f"{home}/") for argument in arguments)
    of_the_agent = any(argument.startswith(f"services.{service}") for argument in arguments for service in SERVICES)
    of_the_agent |= "kubelet" in {Path(argument).name for argument in arguments[:2]}
    return services and of_the_agent and os.fsencode(f"BULKHEAD_HOME={home}") in environment


def alive(pid: int) -> bool:
    """Return whether the process runs, and is no zombie that waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float, every: float = 0.02) -> bool:
    """Return whether the condition became true in time. It polls, because processes and files of other programs send no
    event."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def end_processes(pids: Iterable[int], grace: float = 10.0) -> None:
    """Send SIGTERM, and SIGKILL to the processes that are left after `grace` seconds. A stopped process is continued,
    so that it can end."""
    waiting = list(pids)
    for pid in waiting:
        _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)
    if wait_until(lambda: not any(alive(pid) for pid in waiting), grace):
        return
    for pid in waiting:
        _signal(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in waiting), 5.0)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def running_containers(state: Path) -> list[int]:
    """Return the first processes of the containers, without sandboxes, that run below a containerd's state
    directory."""
    found = []
    for bundle in (state / "io.containerd.runtime.v2.task").glob("*/*"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            annotations = json.loads((bundle / "config.json").read_text())["annotations"]
            pid = int((bundle / "init.pid").read_text())
            if annotations["io.kubernetes.cri.container-type"] == "container" and _is_in(pid, bundle.name):
                found.append(pid)
    return found


def end_containers(state: Path) -> None:
    """Kill the containers below a containerd's state directory by the files in their bundles, which needs no
    containerd, and wait until their first processes have ended: a cgroup with a process in it cannot be removed."""
    killed = []
    for bundle in (state / "io.containerd.runtime.v2.task").glob("*/*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int((bundle / "init.pid").read_text())
            if _is_in(pid, bundle.name):
                _signal(pid, signal.SIGKILL)
                killed.append(pid)
        with contextlib.suppress(OSError):
            Path((bundle / "address").read_text().strip().removeprefix("unix://")).unlink(missing_ok=True)
    wait_until(lambda: not any(alive(pid) for pid in killed), 5.0)


def _is_in(pid: int, container_id: str) -> bool:
    """Return whether the process belongs to this container, and is no later process with the same pid."""
    return container_id in Path(f"/proc/{pid}/cgroup").read_text()


def unmount_below(*directories: Path) -> None:
    """Unmount everything at or below the directories, the newest mount first; lazily where it is busy."""
    for point in reversed([mount.path for mount in mount_table()]):
        if any(Path(point).is_relative_to(directory) for directory in directories):
            plain = subprocess.run(["umount", point], capture_output=True, check=False)
            if plain.returncode != 0:
                subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def remove_pod_cgroups(uids: Iterable[str], root: str = "") -> None:
    """Remove the empty cgroups of these pods, and then the classes above them if they are empty."""
    wanted = {f"pod{uid}" for uid in uids}
    for top in cgroups_of(f"{root.strip('/')}/kubepods".lstrip("/")):
        for directory in reversed(directories_below(top)):
            if any(part in wanted for part in directory.parts):
                _remove_cgroup(directory)
        for directory in (top / "burstable", top / "besteffort", top):
            _remove_cgroup(directory)


def remove_empty_cgroups(name: str) -> None:
    """Remove the cgroup of this name and those below it, unless a process is in them."""
    for top in cgroups_of(name):
        for directory in reversed(directories_below(top)):
            _remove_cgroup(directory)
        _remove_cgroup(top)


def cgroups_of(name: str) -> list[Path]:
    """Return the directory of the cgroup in every hierarchy: one on v2, one for each controller on v1."""
    return [top for top in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")) if top.is_dir() and not top.is_symlink()]


def directories_below(top: Path) -> list[Path]:
    """Return all directories below `top`, each before those in it. One that is removed meanwhile is left out, where
    Path.rglob raises FileNotFoundError."""
    return [Path(directory) for directory, _, _ in os.walk(top)][1:]


def _remove_cgroup(directory: Path) -> None:
    with contextlib.suppress(OSError):  # it is in use, gone, or a file, all of which may happen
        directory.rmdir()


def remove_network(bridge: str) -> None:
    """Remove the bridge, and the namespaces and records of pods behind it that were not torn down."""
    for record in RESULTS.glob("*"):
        with contextlib.suppress(OSError):
            text = record.read_text()
            if f'"{bridge}"' not in text:  # the record belongs to another network
                continue
            for namespace in re.findall(r'"(?:/var)?/run/netns/(cni-[^"/]+)"', text):
                subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)
            record.unlink()
    if Path(f"/sys/class/net/{bridge}/bridge").is_dir():
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True, check=False)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        remove_address_translation(bridge)


def check_marker(home: Path) -> None:
    """Raise FileNotFoundError for a directory that the first run did not mark as its own."""
    if not (home / HOME_MARKER).exists():
        raise FileNotFoundError(2, "not made by the first run", str(home / HOME_MARKER))


def remove_home(home: Path) -> None:
    """Remove the directory with its content if it has the marker."""
    check_marker(home)
    unmount_below(home)
    shutil.rmtree(home)
