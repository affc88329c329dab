"""Puts processes into cgroups that the configuration names, and lists those of the root cgroup (node.md 4.8).

Decides no name. Blocks for microseconds for each process and hierarchy: call it in a thread.
"""

from pathlib import Path

from services.podsync.adapters.cgroups import cgroup_files
from services.podsync.core.cgroups.process_cgroup import cgroup_of_process
from shared.host import cgroup_layout
from shared.host.cgroup_layout import Hierarchies, processes_in

MAX_ROUNDS = 11  # over the root cgroup, while new processes appear in it, as in the kubelet
_INIT = 1  # the id of the first process, which stays where it is


def place(hierarchies: Hierarchies, name: str, process: int, proc: Path = Path("/proc")) -> bool:
    """Move the process (its id), with all its threads, into the cgroup, which is made where it does not exist. Return
    whether it was moved: False where it is there already, or has ended. Raises OSError that names process and
    cgroup."""
    text = _cgroup_file(proc / str(process) / "cgroup")
    if not text or cgroup_of_process(text, v2=hierarchies.unified is not None) == name:
        return False
    try:
        if not cgroup_layout.exists(hierarchies, name):
            cgroup_files.make(hierarchies, name)
        for root in hierarchies.roots():
            (root / name.strip("/") / "cgroup.procs").write_text(str(process))
    except ProcessLookupError:
        return False
    except OSError as error:
        raise OSError(f"cannot move process {process} into cgroup {name}: {error.strerror or error}") from error
    return True


def place_root_processes(hierarchies: Hierarchies, name: str, proc: Path = Path("/proc")) -> int:
    """Move the processes of the root cgroup into this one, except the first process and the kernel's threads. Return
    how many were moved. Raises OSError for the last one that could not be moved, after every one was tried."""
    moved, failure = 0, None
    for _ in range(MAX_ROUNDS):
        processes = [pid for pid in processes_in(_root(hierarchies)) if pid > _INIT and _has_program(proc, pid)]
        if not processes:
            return moved
        failure = None
        for process in processes:
            try:
                moved += place(hierarchies, name, process, proc)
            except OSError as error:
                failure = error
        if failure is not None:
            break
    if failure is not None:
        raise failure
    return moved


def children_of(process: int, proc: Path = Path("/proc")) -> list[int]:
    """Return the ids of the children of the process; none where the kernel does not list them, or the process ends."""
    children: list[int] = []
    try:
        threads = list((proc / str(process) / "task").glob("*/children"))
    except OSError:
        return children
    for thread in threads:
        try:
            children += [int(child) for child in thread.read_text().split()]
        except OSError:
            continue
    return children


def _root(hierarchies: Hierarchies) -> Path:
    """Return the root of the tree that is searched: on v1 that of `devices`, as in the kubelet."""
    if hierarchies.unified is not None:
        return hierarchies.unified
    trees = hierarchies.by_controller
    return trees.get("devices") or next(iter(trees.values()))


def _has_program(proc: Path, process: int) -> bool:
    """Return whether the process runs a program: no for a thread of the kernel, and for a process that has ended."""
    try:
        (proc / str(process) / "exe").readlink()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _cgroup_file(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""
