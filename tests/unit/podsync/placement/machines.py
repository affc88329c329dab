"""Machines of many shapes and the pods that the tests of placement run on them."""

from typing import Any

from shared.model.machine_topology import Cpu, MachineTopology, NumaNode

Json = dict[str, Any]
GIB = 1 << 30


def a_machine(
    sockets: int = 1,
    nodes: int = 1,
    cores: int = 4,
    threads: int = 2,
    *,
    caches: int = 1,
    interleaved: bool = False,
    offline: frozenset[int] = frozenset(),
    memory: int = 16 * GIB,
) -> MachineTopology:
    """Return a machine of that many sockets, NUMA nodes and caches, with `cores` cores in all. Sockets, nodes and
    caches divide the cores into equal parts. Linux counts the first threads of all cores, then the second ones;
    `interleaved`: neighbouring cores are on different nodes. `memory`: bytes of each node.
    """
    cpus = {}
    for thread in range(threads):
        for core in range(cores):
            place = core % nodes * (cores // nodes) + core // nodes if interleaved else core
            cpus[core + thread * cores] = {
                "core": core,
                "socket": place * sockets // cores,
                "numa_node": place * nodes // cores,
                "uncore_cache": place * caches // cores,
            }
    online = {cpu: at for cpu, at in cpus.items() if cpu not in offline}
    lowest: dict[int, int] = {}
    for cpu, at in sorted(online.items()):
        lowest.setdefault(at["core"], cpu)
    return MachineTopology(
        cpus={cpu: Cpu(id=cpu, **{**at, "core": lowest[at["core"]]}) for cpu, at in sorted(online.items())},
        nodes={
            node: NumaNode(
                id=node, memory=memory, distances={other: 10 if other == node else 21 for other in range(nodes)}
            )
            for node in range(nodes)
        },
    )


MACHINES = {
    "one socket, no SMT": a_machine(1, 1, 6, 1),
    "one socket, SMT": a_machine(1, 1, 4, 2),
    "two sockets, SMT": a_machine(2, 2, 6, 2),
    "two sockets, SMT, interleaved": a_machine(2, 2, 6, 2, interleaved=True),
    "two sockets of two nodes": a_machine(2, 4, 8, 1),
    "two sockets of two nodes, SMT": a_machine(2, 4, 4, 2),
    "one socket of two nodes, SMT": a_machine(1, 2, 6, 2),
    "nodes of two sockets, SMT": a_machine(4, 2, 4, 2),
    "eight nodes": a_machine(2, 8, 8, 1),
    "four threads in a core": a_machine(1, 2, 2, 4),
    "two caches in a node, SMT": a_machine(1, 1, 6, 2, caches=2),
    "two sockets of two caches": a_machine(2, 2, 8, 1, caches=4),
    "a sibling offline": a_machine(1, 1, 4, 2, offline=frozenset({5})),
    "a socket partly offline": a_machine(2, 2, 6, 2, offline=frozenset({3, 9})),
}


def a_container(name: str, cpu: str = "1", memory: str = "1Gi", **more: Any) -> Json:
    """Return a container whose requests equal its limits."""
    amounts = {"cpu": cpu, "memory": memory}
    return {"name": name, "resources": {"limits": amounts, "requests": amounts}, **more}


def a_pod(*containers: Json, init: tuple[Json, ...] = (), uid: str = "u", **spec: Any) -> Json:
    """Return a pod of these containers: Guaranteed when all are made by `a_container`."""
    return {
        "metadata": {"name": uid, "namespace": "d", "uid": uid},
        "spec": {"initContainers": list(init), "containers": list(containers), **spec},
    }
