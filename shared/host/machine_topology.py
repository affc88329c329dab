"""Reads which CPUs, NUMA nodes and caches the machine has from /sys (node.md 4.20).

What the kernel does not show is replaced: without NUMA nodes each socket is one and the first has all memory; a CPU
without a core is a core of its own; without an L3 cache the CPUs of a socket share one. A file with an impossible
content is an OperatorError.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from shared.errors import OperatorError
from shared.host.machine import meminfo
from shared.model.cpu_list import parse_cpus
from shared.model.machine_topology import Cpu, CpuSet, MachineTopology, NumaNode
from shared.model.quantity import Quantity
from shared.podspec.resources import HUGEPAGES

MAX_CPUS = 8192  # the largest NR_CPUS of Linux on any architecture
MAX_NODES = 1024  # likewise of NUMA nodes
MAX_FILE_BYTES = 65536  # the rest of a larger file is not read
MIN_UNCORE_LEVEL = 3  # of a cache that several cores share
_CPU_DIRECTORIES, _NODE_DIRECTORIES = "sys/devices/system/cpu", "sys/devices/system/node"
_HUGE_PAGE_DIRECTORY = re.compile(r"hugepages-(\d{1,12})kB")
_CACHE_DIRECTORY = re.compile(r"index\d{1,4}")
_REMEDY = (
    "set cpuManagerPolicy, memoryManagerPolicy and topologyManagerPolicy to none, or correct the kernel or firmware"
)


class _CpuFiles(Struct, frozen=True, kw_only=True):
    """Has what the directory of one CPU says. `core` None: the kernel does not name one."""

    id: int
    core: tuple[int, ...] | None
    socket: int
    uncore_cache: int | None


def read_machine_topology(root: Path = Path("/")) -> MachineTopology:
    """Read the online CPUs and all NUMA nodes below `root`. Raises OperatorError for a content that cannot be."""
    all_cpus = _numbered(root / _CPU_DIRECTORIES, "cpu", MAX_CPUS)
    online = _online(root / _CPU_DIRECTORIES, all_cpus)
    nodes = _numbered(root / _NODE_DIRECTORIES, "node", MAX_NODES)
    if nodes:
        cpus_by_node = {
            node: [_read_cpu(path, cpu) for cpu, path in _numbered(directory, "cpu", MAX_CPUS).items() if cpu in online]
            for node, directory in nodes.items()
        }
        numa_nodes = {node: _read_node(directory, node, tuple(nodes)) for node, directory in nodes.items()}
    else:
        cpus_by_node = {}
        for cpu, path in all_cpus.items():
            if cpu in online:
                found = _read_cpu(path, cpu)
                cpus_by_node.setdefault(found.socket, []).append(found)
        numa_nodes = _nodes_of_sockets(root, cpus_by_node)
    cpus: dict[int, Cpu] = {}
    for node, found_cpus in cpus_by_node.items():
        for placed in _placed(found_cpus, node):
            if placed.id in cpus:
                what = f"CPU {placed.id} belongs to the NUMA nodes {cpus[placed.id].numa_node} and {node}"
                raise OperatorError(what, where=str(root / _NODE_DIRECTORIES), remedy=_REMEDY)
            cpus[placed.id] = placed
    if not cpus:
        raise OperatorError("shows no online CPU", where=str(root / _CPU_DIRECTORIES), remedy=_REMEDY)
    return MachineTopology(cpus=dict(sorted(cpus.items())), nodes=dict(sorted(numa_nodes.items())))


def _numbered(directory: Path, prefix: str, limit: int) -> dict[int, Path]:
    """Return the entries `<prefix><number>` of the directory by number, in ascending order."""
    name = re.compile(rf"{prefix}(0|[1-9]\d{{0,5}})")
    try:
        found = {int(match[1]): path for path in directory.iterdir() if (match := name.fullmatch(path.name))}
    except OSError:
        return {}
    if len(found) > limit:
        what = f"has {len(found)} entries {prefix}<number>, and at most {limit} are possible"
        raise OperatorError(what, where=str(directory), remedy=_REMEDY)
    return dict(sorted(found.items()))


def _online(directory: Path, cpus: Mapping[int, Path]) -> CpuSet:
    """Return the CPUs that the kernel uses. Without its list, those whose own file does not say otherwise."""
    text = _text(directory / "online")
    if text is None:
        return frozenset(cpu for cpu, path in cpus.items() if _text(path / "online") != "0")
    listed = parse_cpus(text)
    if listed is None:
        raise OperatorError(f"{_shown(text)} is not a list of CPUs", where=str(directory / "online"), remedy=_REMEDY)
    return listed


def _read_cpu(directory: Path, cpu: int) -> _CpuFiles:
    topology = directory / "topology"
    socket, core = _number(topology / "physical_package_id"), _number(topology / "core_id")
    # s390x counts cores anew in each book and drawer.
    above = (_number(topology / name) or 0 for name in ("drawer_id", "book_id"))
    return _CpuFiles(
        id=cpu,
        core=None if core is None else (socket or 0, *above, core),
        socket=socket or 0,
        uncore_cache=_uncore_cache(directory / "cache"),
    )


def _uncore_cache(directory: Path) -> int | None:
    """Return the id of the CPU's L3 cache, or the lowest CPU that shares it where caches have no ids."""
    found: dict[int, Path] = {}
    try:
        indexes = sorted(path for path in directory.iterdir() if _CACHE_DIRECTORY.fullmatch(path.name))
    except OSError:
        return None
    for path in indexes:
        level = _number(path / "level")
        if level is not None and level >= MIN_UNCORE_LEVEL and _text(path / "type") != "Instruction":
            found.setdefault(level, path)
    if not found:
        return None
    nearest = found[min(found)]
    shared = parse_cpus(_text(nearest / "shared_cpu_list") or "")
    cache = _number(nearest / "id")
    return min(shared) if cache is None and shared else cache


def _placed(cpus: list[_CpuFiles], node: int) -> list[Cpu]:
    lowest: dict[tuple[int, ...], int] = {}
    for cpu in cpus:
        if cpu.core is not None:
            lowest[cpu.core] = min(cpu.id, lowest.get(cpu.core, cpu.id))
    return [
        Cpu(
            id=cpu.id,
            core=cpu.id if cpu.core is None else lowest[cpu.core],
            socket=cpu.socket,
            numa_node=node,
            uncore_cache=cpu.socket if cpu.uncore_cache is None else cpu.uncore_cache,
        )
        for cpu in cpus
    ]


def _read_node(directory: Path, node: int, nodes: tuple[int, ...]) -> NumaNode:
    return NumaNode(
        id=node,
        memory=_node_memory(directory / "meminfo"),
        huge_pages=_huge_pages(directory / "hugepages"),
        distances=_distances(directory / "distance", nodes),
    )


def _nodes_of_sockets(root: Path, sockets: Mapping[int, object]) -> dict[int, NumaNode]:
    first = min(sockets, default=0)
    huge_pages = _huge_pages(root / "sys/kernel/mm/hugepages")
    whole = NumaNode(id=first, memory=meminfo(root / "proc").get("MemTotal", 0), huge_pages=huge_pages)
    return {socket: whole if socket == first else NumaNode(id=socket) for socket in sockets}


def _node_memory(path: Path) -> int:
    """Return the MemTotal of a node's meminfo in bytes; 0 for a node without that file."""
    text = _text(path)
    if text is None:
        return 0
    match = re.search(r"^Node \d+ MemTotal:\s+(\d{1,15}) kB$", text, re.ASCII | re.MULTILINE)
    if match is None:
        raise OperatorError("has no line Node <number> MemTotal: <number> kB", where=str(path), remedy=_REMEDY)
    return int(match[1]) * 1024


def _huge_pages(directory: Path) -> dict[str, int]:
    """Return the bytes of huge pages by the name of their resource, such as hugepages-2Mi."""
    try:
        sizes = sorted(
            (int(match[1]) * 1024, path)
            for path in directory.iterdir()
            if (match := _HUGE_PAGE_DIRECTORY.fullmatch(path.name))
        )
    except OSError:
        return {}
    return {
        f"{HUGEPAGES}{Quantity.of_base(size, binary=True)}": size * (_number(path / "nr_hugepages") or 0)
        for size, path in sizes
    }


def _distances(path: Path, nodes: tuple[int, ...]) -> dict[int, int]:
    """Return the distance to each node; the file has them in the order of the nodes' ids. Empty = not known."""
    listed = (_text(path) or "").split()
    if len(listed) != len(nodes) or not all(re.fullmatch(r"\d{1,9}", number, re.ASCII) for number in listed):
        return {}
    return {node: int(number) for node, number in zip(nodes, listed, strict=True)}


def _number(path: Path) -> int | None:
    """Return the number in the file; None for an absent file and for a negative number, the kernel's "not known"."""
    text = _text(path)
    if text is None:
        return None
    if not re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        raise OperatorError(f"{_shown(text)} is not a number", where=str(path), remedy=_REMEDY)
    return None if text.startswith("-") else int(text)


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode(errors="replace").strip()
    except OSError:
        return None


def _shown(text: str) -> str:
    return ascii(text[:32])
