"""Reads the usage of cgroups, v1, v2 and hybrid (node.md 7.4). A file that is missing, or vanishes, is left out.
Blocks for some 10 microseconds for each file; no descriptor stays open between two readings.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from bus.messages.usage import CgroupUsage
from services.pleg.core.cgroup_values import CgroupFiles, MachineMemory, v1_usage, v2_usage
from shared.host.cgroup_layout import Hierarchies
from shared.host.cgroup_name import is_cgroup_of_container
from shared.host.machine import meminfo

MAX_FILE_BYTES = 64 * 1024  # of a longer cgroup.procs the processes after them are not counted
_PRESSURES = ("cpu.pressure", "memory.pressure", "io.pressure")


class CgroupPlace(Struct, frozen=True):
    """Has the directories of one cgroup: the one of v2, or those of v1 by controller. `below`: the path from there to
    the cgroup that has its processes, such as "/container"; "" where it has them itself."""

    unified: str | None
    by_controller: Mapping[str, str]
    is_root: bool = False
    below: str = ""


def place_of(hierarchies: Hierarchies, name: str) -> CgroupPlace:
    """Return the directories of the cgroup with this path in every hierarchy; "/" = the root."""
    return _place(hierarchies, dict.fromkeys((*hierarchies.by_controller, ""), name))


def place_of_process(hierarchies: Hierarchies, pid: int, proc: str = "/proc") -> CgroupPlace | None:
    """Return the directories of the cgroup of a process; None where it has ended."""
    paths = {}
    # Not splitlines(): the kernel escapes only line feeds, and a name may have other characters that it takes for line
    # ends.
    text = (read_file(f"{proc}/{pid}/cgroup") or b"").decode(errors="surrogateescape")
    for line in filter(None, text.split("\n")):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            paths[controller.removeprefix("name=")] = path
    return _place(hierarchies, paths) if paths else None


def place_of_container(hierarchies: Hierarchies, pid: int, container_id: str) -> CgroupPlace | None:
    """Return the directories of the cgroup that the runtime has made for the container or sandbox of this process, by
    its id; None where the process has ended. The process may be in one below it: with crun and the cgroup driver
    systemd it is, and a container may make cgroups of its own. Where no cgroup has the id in its name, that of the
    process is returned."""
    place = place_of_process(hierarchies, pid) if pid > 0 else None
    if place is None:
        return None

    def cut(path: str) -> str:
        names = path.split("/")
        of_it = (n for n, name in enumerate(names, 1) if is_cgroup_of_container(name, container_id))
        return "/".join(names[: next(of_it, len(names))])

    process = place.unified or place.by_controller.get("cpuacct", "")
    return CgroupPlace(
        unified=place.unified and cut(place.unified),
        by_controller={name: cut(path) for name, path in place.by_controller.items()},
        is_root=place.is_root,
        below=process.removeprefix(cut(process)),
    )


def _place(hierarchies: Hierarchies, paths: Mapping[str, str]) -> CgroupPlace:
    is_root = all(not path.strip("/") for path in paths.values())
    if hierarchies.unified is not None:
        return CgroupPlace(str(hierarchies.unified / paths.get("", "/").strip("/")), {}, is_root)
    directories = {
        controller: str(root / paths[controller].strip("/"))
        for controller, root in hierarchies.by_controller.items()
        if controller in paths
    }
    return CgroupPlace(None, directories, is_root)


def read_usage(place: CgroupPlace, time: float, proc: Path = Path("/proc")) -> CgroupUsage | None:
    """Read the usage at `time` (wall clock seconds); None where the cgroup does not exist."""
    machine = _machine_memory(proc) if place.is_root else None
    if place.unified is not None:
        files = _v2_files(place.unified, place.below, Path(proc, "pressure") if place.is_root else None)
        return v2_usage(files, time, machine) if files else None
    files = _v1_files(place.by_controller, place.below)
    return v1_usage(files, time, machine) if files else None


def read_file(path: str) -> bytes | None:
    """Return the content of a regular file, up to MAX_FILE_BYTES; None where it cannot be read. The open of a FIFO does
    not block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = b""
        while len(content) < MAX_FILE_BYTES and (part := os.read(descriptor, MAX_FILE_BYTES - len(content))):
            content += part  # the kernel returns a page of its files at a time
        return content
    except OSError:  # ENODEV: the cgroup was removed meanwhile
        return None
    finally:
        os.close(descriptor)


def _v1_files(by_controller: Mapping[str, str], below: str) -> CgroupFiles | None:
    cpu, memory = by_controller.get("cpuacct"), by_controller.get("memory")
    usage = read_file(f"{cpu}/cpuacct.usage") if cpu else None
    stat = read_file(f"{memory}/memory.stat") if memory else None
    if usage is None and stat is None:
        return None
    return CgroupFiles(
        cpu=usage,
        memory_stat=stat,
        memory_usage=read_file(f"{memory}/memory.usage_in_bytes"),
        memory_limit=read_file(f"{memory}/memory.limit_in_bytes"),
        swap_limit=read_file(f"{memory}/memory.memsw.limit_in_bytes"),
        processes=read_file(f"{cpu}{below}/cgroup.procs"),
    )


def _v2_files(directory: str, below: str, root_pressures: Path | None) -> CgroupFiles | None:
    cpu = read_file(f"{directory}/cpu.stat")
    if cpu is None:
        return None
    pressures = [read_file(f"{directory}/{name}") for name in _PRESSURES]
    if root_pressures:
        pressures = [read_file(f"{root_pressures}/{name.partition('.')[0]}") for name in _PRESSURES]
    return CgroupFiles(
        cpu=cpu,
        memory_stat=read_file(f"{directory}/memory.stat"),
        memory_usage=read_file(f"{directory}/memory.current"),
        memory_limit=read_file(f"{directory}/memory.max"),
        swap_usage=read_file(f"{directory}/memory.swap.current"),
        swap_limit=read_file(f"{directory}/memory.swap.max"),
        processes=read_file(f"{directory}{below}/cgroup.procs"),
        pressures=(pressures[0], pressures[1], pressures[2]),
    )


def _machine_memory(proc: Path) -> MachineMemory:
    memory = meminfo(proc)
    total, free = memory.get("SwapTotal"), memory.get("SwapFree")
    used = None if total is None or free is None else total - free
    return MachineMemory(memory=memory.get("MemTotal"), swap=total, swap_usage=used)
