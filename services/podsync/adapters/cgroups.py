"""Writes pod and QoS cgroups below kubepods, driver cgroupfs, on v1, hybrid and v2 hosts (reference node.md 4.1-4.4).

Decides no value (`core.pod_cgroup` does). Everything here blocks for microseconds to milliseconds: call it in a thread.
"""

import errno
import logging
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from services.podsync.core.pod_cgroup import CgroupValues
from shared.podspec.resources import weight

log = logging.getLogger(__name__)

V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "blkio", "devices", "freezer", "systemd")
KILL_ROUNDS = 5
REMOVE_TRIES = 10


@dataclass(frozen=True)
class Hierarchies:
    """Where cgroups are mounted: one root per v1 controller, or the one v2 root.

    `beside`: on a hybrid host the v2 hierarchy without controllers, where the runtime makes a cgroup of its own accord.
    """

    unified: Path | None
    by_controller: dict[str, Path]
    beside: Path | None = None

    def roots(self) -> list[Path]:
        """Every directory tree a cgroup has to exist in."""
        return [self.unified] if self.unified else list(dict.fromkeys(self.by_controller.values()))


def find_hierarchies(mountinfo: str | None = None) -> Hierarchies:
    """Read the mounts of this machine. A hybrid host (v1 controllers, v2 beside them) counts as v1."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    unified: Path | None = None
    controllers: dict[str, Path] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        mountpoint, kind, options = Path(left.split()[4]), right.split()[0], right.split()[2].split(",")
        if kind == "cgroup2":
            unified = mountpoint
        elif kind == "cgroup":
            names = {option.removeprefix("name=") for option in options}
            for name in names.intersection(V1_CONTROLLERS):
                controllers.setdefault(name, mountpoint)
    if controllers:
        return Hierarchies(unified=None, by_controller=controllers, beside=unified)
    return Hierarchies(unified=unified, by_controller={})


def ensure(hierarchies: Hierarchies, name: str, values: CgroupValues) -> None:
    """Make the cgroup `name` (`/kubepods/burstable/pod<uid>`) with every ancestor, and write its values.

    Raises OSError naming the file that refused.
    """
    existed = all((root / name.strip("/")).is_dir() for root in hierarchies.roots())
    for root in hierarchies.roots():
        _make(root, name, enable_controllers=hierarchies.unified is not None)
    try:
        _write(hierarchies, name, values)
    except OSError as error:
        if not existed:
            raise
        # containers run in it already, and it may hold more than the limit allows now: it goes on as it is
        log.warning("cgroup %s keeps its values: %s", name, error.strerror)


def _make(root: Path, name: str, *, enable_controllers: bool) -> None:
    path = root
    for part in name.strip("/").split("/"):
        if enable_controllers:
            available = (path / "cgroup.controllers").read_text().split()
            for controller in available:
                _put(path / "cgroup.subtree_control", f"+{controller}", optional=True)
        parent, path = path, path / part
        path.mkdir(mode=0o755, exist_ok=True)
        for inherited in ("cpuset.cpus", "cpuset.mems"):
            file = path / inherited
            if not enable_controllers and file.exists() and not file.read_text().strip():
                file.write_text((parent / inherited).read_text().strip())


def _write(hierarchies: Hierarchies, name: str, values: CgroupValues) -> None:
    relative = name.strip("/")
    if hierarchies.unified is not None:
        path = hierarchies.unified / relative
        if values.cpu_shares is not None:
            _put(path / "cpu.weight", str(weight(values.cpu_shares)))
        if values.cpu_quota is not None or values.cpu_period is not None:
            quota = str(values.cpu_quota) if values.cpu_quota and values.cpu_quota > 0 else "max"
            _put(path / "cpu.max", f"{quota} {values.cpu_period or 100_000}")
        if values.memory_limit:
            _put(path / "memory.max", str(values.memory_limit))
        if values.pids_limit:
            _put(path / "pids.max", str(values.pids_limit))
        sizes = {f"hugetlb.{size}.max": limit for size, limit in (values.hugepage_limits or {}).items()}
        for file, limit in sizes.items():
            _put(path / file, str(limit), optional=True)
        return
    where = {controller: root / relative for controller, root in hierarchies.by_controller.items()}
    if values.cpu_shares is not None:
        _put(where["cpu"] / "cpu.shares", str(values.cpu_shares))
    if values.cpu_period:
        _put(where["cpu"] / "cpu.cfs_period_us", str(values.cpu_period))
    if values.cpu_quota:
        _put(where["cpu"] / "cpu.cfs_quota_us", str(values.cpu_quota))
    if values.memory_limit:
        _put(where["memory"] / "memory.limit_in_bytes", str(values.memory_limit))
    if values.pids_limit and "pids" in where:
        _put(where["pids"] / "pids.max", str(values.pids_limit))
    if "hugetlb" in where:
        for size, limit in (values.hugepage_limits or {}).items():
            _put(where["hugetlb"] / f"hugetlb.{size}.limit_in_bytes", str(limit), optional=True)


def _put(file: Path, text: str, *, optional: bool = False) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        if not optional:
            raise OSError(error.errno, f"cannot write {text!r} to {file}: {error.strerror}") from error


def destroy(hierarchies: Hierarchies, name: str) -> None:
    """Kill what is left in the cgroup and remove it with everything below; absent is fine. Raises OSError."""
    roots = [*hierarchies.roots(), *([hierarchies.beside] if hierarchies.beside else [])]
    paths = [root / name.strip("/") for root in roots]
    for path in paths:
        for _ in range(KILL_ROUNDS):
            pids = _processes(path)
            if not pids:
                break
            log.info("killing processes left in cgroup %s: %s", path, pids)
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)  # the kernel tells no one when a killed process has left its cgroup
    for path in paths:
        _remove(path)


def _processes(path: Path) -> list[int]:
    pids: list[int] = []
    for file in [path / "cgroup.procs", *path.glob("**/cgroup.procs")]:
        try:
            pids += [int(pid) for pid in file.read_text().split()]
        except OSError:
            continue
    return sorted(set(pids) - {os.getpid()})


def _remove(path: Path) -> None:
    """rmdir bottom-up; EBUSY is tried again 10 times, from 1 ms doubling, as the kubelet does."""
    if not path.is_dir():
        return
    for child in sorted((d for d in path.glob("**/*") if d.is_dir()), key=lambda d: len(d.parts), reverse=True):
        _rmdir(child)
    _rmdir(path)


def _rmdir(path: Path) -> None:
    delay = 0.001
    for attempt in range(REMOVE_TRIES):
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or attempt == REMOVE_TRIES - 1:
                raise OSError(error.errno, f"cannot remove cgroup {path}: {error.strerror}") from error
            time.sleep(delay)
            delay *= 2
