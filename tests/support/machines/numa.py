"""Machines with one to eight NUMA nodes: their topology, and the files of /proc and /sys in which a kernel shows it."""

from dataclasses import dataclass
from pathlib import Path

from shared.model.cpu_list import write_cpus
from shared.model.frozen_copy import replace
from shared.model.machine_topology import Cpu, MachineTopology, NumaNode

GIB = 2**30
_PAGES = {"hugepages-2Mi": 2048, "hugepages-1Gi": 1048576}  # KiB
_NEAR, _SAME_SOCKET, _FAR = 10, 12, 21  # distances in the units of ACPI's SLIT


@dataclass(frozen=True, kw_only=True)
class NumaMachine:
    """Has a machine. `threads_apart`: the second threads of all cores have numbers above those of all first ones, as on
    Intel and AMD; else the threads of a core are neighbours, as on virtual machines and POWER."""

    sockets: int = 1
    nodes_per_socket: int = 1
    caches_per_node: int = 1
    cores_per_cache: int = 4
    threads: int = 2
    threads_apart: bool = True
    memory: tuple[int, ...] = (16 * GIB,)  # of each node in turn, from the beginning again where there are more nodes
    huge_pages: tuple[dict[str, int], ...] = ({},)  # likewise, in bytes
    memory_only_nodes: int = 0  # behind all others
    offline: frozenset[int] = frozenset()

    def topology(self) -> MachineTopology:
        """Return what the kubelet makes of it."""
        nodes_with_cpus = self.sockets * self.nodes_per_socket
        cores = nodes_with_cpus * self.caches_per_node * self.cores_per_cache
        online: list[tuple[int, int]] = []  # CPU, number of its core
        for core in range(cores):
            for thread in range(self.threads):
                cpu = core + thread * cores if self.threads_apart else core * self.threads + thread
                if cpu not in self.offline:
                    online.append((cpu, core))
        cpus = {}
        for cpu, core in sorted(online):
            cache = core // self.cores_per_cache
            node = cache // self.caches_per_node
            cpus[cpu] = Cpu(
                id=cpu,
                core=min(one for one, same in online if same == core),
                socket=node // self.nodes_per_socket,
                numa_node=node,
                uncore_cache=cache,
            )
        count = nodes_with_cpus + self.memory_only_nodes
        nodes = {
            node: NumaNode(
                id=node,
                memory=self.memory[node % len(self.memory)],
                huge_pages=self.huge_pages[node % len(self.huge_pages)],
                distances={other: self._distance(node, other) for other in range(count)},
            )
            for node in range(count)
        }
        return MachineTopology(cpus=cpus, nodes=nodes)

    def _distance(self, one: int, other: int) -> int:
        if one == other:
            return _NEAR
        return _SAME_SOCKET if one // self.nodes_per_socket == other // self.nodes_per_socket else _FAR

    def write(self, root: Path) -> Path:
        """Write the files of this machine below `root`, and return it."""
        topology, everything = self.topology(), replace(self, offline=frozenset()).topology()
        cpu_directory = root / "sys/devices/system/cpu"
        put(cpu_directory / "online", write_cpus(topology.cpus))
        for cpu in everything.cpus.values():
            directory = cpu_directory / f"cpu{cpu.id}"
            if cpu.id:  # the kernel does not switch CPU 0 off
                put(directory / "online", str(int(cpu.id not in self.offline)))
            if cpu.id in self.offline:  # without topology and cache
                continue
            in_socket = cpu.core - min(one.core for one in everything.cpus.values() if one.socket == cpu.socket)
            put(directory / "topology/physical_package_id", str(cpu.socket))
            put(directory / "topology/core_id", str(in_socket))
            siblings = [one.id for one in topology.cpus.values() if everything.cpus[one.id].core == cpu.core]
            put(directory / "topology/thread_siblings_list", write_cpus(siblings))
            for index, (level, kind) in enumerate(((1, "Data"), (1, "Instruction"), (2, "Unified"), (3, "Unified"))):
                number = cpu.uncore_cache if level == 3 else cpu.core
                same = [
                    one.id
                    for one in topology.cpus.values()
                    if number == (one.uncore_cache if level == 3 else everything.cpus[one.id].core)
                ]
                put(directory / f"cache/index{index}/level", str(level))
                put(directory / f"cache/index{index}/type", kind)
                put(directory / f"cache/index{index}/id", str(number))
                put(directory / f"cache/index{index}/shared_cpu_list", write_cpus(same))
        for node in topology.nodes.values():
            directory = root / f"sys/devices/system/node/node{node.id}"
            put(directory / "distance", " ".join(str(one) for one in node.distances.values()))
            lines = (f"Node {node.id} MemTotal:       {node.memory // 1024} kB", f"Node {node.id} MemFree:  1 kB")
            put(directory / "meminfo", "\n".join(lines))
            put(directory / "cpulist", write_cpus(topology.cpus_of_nodes(frozenset({node.id}))))
            for name, size in node.huge_pages.items():
                kib = _PAGES[name]
                put(directory / f"hugepages/hugepages-{kib}kB/nr_hugepages", str(size // 1024 // kib))
            for cpu in everything.cpus.values():
                if cpu.numa_node == node.id:
                    (directory / f"cpu{cpu.id}").symlink_to(f"../../cpu/cpu{cpu.id}")
        put(root / "proc/meminfo", f"MemTotal: {sum(node.memory for node in topology.nodes.values()) // 1024} kB")
        return root


def put(path: Path, text: str) -> None:
    """Write a line into a file of the tree."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


MACHINES = {
    "1 node, SMT": NumaMachine(),
    "1 node, no SMT, 2 CPUs": NumaMachine(cores_per_cache=2, threads=1),
    "1 node, threads beside one another": NumaMachine(threads_apart=False),
    "2 nodes, SMT, uneven memory": NumaMachine(
        sockets=2,
        memory=(64 * GIB, 16 * GIB),
        huge_pages=({"hugepages-2Mi": GIB, "hugepages-1Gi": 4 * GIB}, {"hugepages-2Mi": 0, "hugepages-1Gi": 0}),
    ),
    "2 nodes, no SMT": NumaMachine(sockets=2, cores_per_cache=8, threads=1),
    "2 nodes in 1 socket, 8 caches": NumaMachine(nodes_per_socket=2, caches_per_node=4),
    "4 nodes in 2 sockets, SMT": NumaMachine(sockets=2, nodes_per_socket=2, caches_per_node=2),
    "4 nodes, one thread of a core offline": NumaMachine(sockets=4, offline=frozenset({1, 16, 21})),
    "8 nodes in 2 sockets, SMT": NumaMachine(sockets=2, nodes_per_socket=4, caches_per_node=2),
    "8 nodes, no SMT": NumaMachine(sockets=8, threads=1, memory=(8 * GIB, 4 * GIB)),
    "2 nodes, a socket offline": NumaMachine(sockets=2, cores_per_cache=2, offline=frozenset({2, 3, 6, 7})),
    "2 nodes, and 2 with memory alone": NumaMachine(
        sockets=2, memory_only_nodes=2, memory=(8 * GIB, 8 * GIB, 64 * GIB)
    ),
}
