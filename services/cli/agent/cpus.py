"""`bulkhead cpus` shows which containers have CPUs and NUMA memory alone, from podsync's streams and from /sys."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, to_builtins

from services.cli.agent.holders import Holder, holder, sorted_pods
from services.cli.agent.local_agent import Agent, local_agent
from services.cli.terminal.output import write_report
from services.cli.terminal.table import size, table, terminal_width
from shared.errors import OperatorError
from shared.host.machine_topology import read_machine_topology
from shared.model.cpu_list import parse_cpus, write_cpus
from shared.model.machine_topology import CpuSet, MachineTopology

Write = Callable[[str], None]
_RESOURCES, _ADMITTED = "node.resources", "pods.admitted"


class Use(StrEnum):
    """Says who may run on a CPU."""

    EXCLUSIVE = "exclusive"  # the containers of one pod alone, of which one at a time has it alone
    POD = "pod"  # several containers of one pod alone
    RESERVED = "reserved"  # no container can get it alone
    SHARED = "shared"  # all other containers


class CpuRow(Struct, frozen=True, kw_only=True):
    """Has one CPU. `core`: the lowest CPU of its core. Its place is None where the CPU is not online."""

    cpu: int
    numa_node: int | None
    socket: int | None
    core: int | None
    use: Use
    containers: tuple[
        Holder, ...
    ]  # several: an init container and those that have its CPUs after it, or those of `POD`


class MemoryRow(Struct, frozen=True, kw_only=True):
    """Has memory that NUMA nodes hold together. `kind`: memory, or hugepages-<size>. `container` None: it is what
    containers can get."""

    nodes: tuple[int, ...]
    kind: str
    size_bytes: int
    container: Holder | None = None


class WholePodRow(Struct, frozen=True, kw_only=True):
    """Has a pod with resources of its own. `pool`: those of its CPUs that no container of it has alone."""

    namespace: str
    pod: str
    uid: str
    cpus: str
    pool: str
    memory: tuple[MemoryRow, ...]


class CpuReport(Struct, frozen=True, kw_only=True):
    """Has who has which CPUs and NUMA memory. CPUs are lists such as `0-3,8`."""

    static: bool  # whether the agent has cpuManagerPolicy static
    shared_pool: str  # of the containers without CPUs of their own
    reserved: str
    cpus: tuple[CpuRow, ...]
    memory: tuple[MemoryRow, ...]  # that containers have
    allocatable_memory: tuple[MemoryRow, ...]  # that containers can get, whether or not one has it
    pods: tuple[WholePodRow, ...] = ()  # that have CPUs or memory as a whole


def show_cpus(run_dir: str, form: str, out: Write, err: Write) -> int:
    """Print each CPU with its place and who has it, and the NUMA memory that containers have. Return the exit code."""
    try:
        with local_agent(run_dir) as agent:
            resources, admitted = _read_streams(agent)
        found = cpu_report(resources, admitted, read_machine_topology())
    except OperatorError as error:
        err(str(error))
        return 1
    write_report(form, to_builtins(found), cpu_lines(found, terminal_width()), out)
    return 0


def cpu_report(
    resources: Mapping[str, Any], admitted: Iterable[Mapping[str, Any]], topology: MachineTopology
) -> CpuReport:
    """Return who has what. `resources`: the item of `node.resources`; `admitted`: those of `pods.admitted`."""
    pods = sorted_pods(admitted)
    alone = [(holder(pod, name), _cpus(text)) for pod in pods for name, text in (pod.get("cpus") or {}).items()]
    pooled = [(holder(pod, name), _cpus(text)) for pod in pods for name, text in (pod.get("pool_cpus") or {}).items()]
    wholes = [_cpus(pod.get("pod_cpus")) for pod in pods]
    taken = frozenset[int]().union(*wholes, *(cpus for _, cpus in alone))
    is_static = bool(resources.get("shared_cpus"))
    reserved = topology.all_cpus - _cpus(resources.get("exclusive_cpus")) if is_static else frozenset()
    # Where containers have all CPUs that are not reserved, the others run on the reserved ones.
    pool = (_cpus(resources.get("shared_cpus")) - taken or reserved) if is_static else topology.all_cpus
    memory = [
        _memory_row(block, holder(pod, name))
        for pod in pods
        for name, blocks in (pod.get("memory") or {}).items()
        for block in blocks
    ]
    return CpuReport(
        static=is_static,
        shared_pool=write_cpus(pool),
        reserved=write_cpus(reserved),
        cpus=tuple(
            _cpu_row(cpu, topology, _holders(cpu, alone) or _holders(cpu, pooled), _use(cpu, alone, taken, reserved))
            for cpu in sorted(topology.all_cpus | taken)
        ),
        memory=tuple(memory),
        allocatable_memory=tuple(_memory_row(block) for block in resources.get("memory") or ()),
        pods=tuple(_pod_row(pod) for pod in pods if pod.get("pod_cpus") or pod.get("pod_memory")),
    )


def cpu_lines(report: CpuReport, width: int) -> list[str]:
    """Return the shared pool, a table of all CPUs, and one of the memory that containers have."""
    rows = [
        [str(row.cpu), *map(_cell, (row.numa_node, row.socket, row.core)), row.use, ", ".join(map(str, row.containers))]
        for row in report.cpus
    ]
    policy = "" if report.static else " (cpuManagerPolicy none)"
    lines = [f"shared pool: {report.shared_pool or '-'}{policy}"]
    if report.static:
        lines.append(f"reserved: {report.reserved or '-'}")
    for pod in report.pods:
        memory = "".join(
            f", {size(row.size_bytes)} of {row.kind} of NUMA {write_cpus(row.nodes)}" for row in pod.memory
        )
        pool = f" (its pool: {pod.pool or '-'})" if pod.cpus else ""
        lines.append(f"pod {pod.namespace}/{pod.pod}: {pod.cpus or '-'}{pool}{memory}")
    lines += ["", *table(["CPU", "NUMA", "SOCKET", "CORE", "USE", "CONTAINERS"], rows, width)]
    if not report.allocatable_memory:
        return lines
    if not report.memory and any(pod.memory for pod in report.pods):
        return lines
    if not report.memory:
        return [*lines, "", "no container has memory of NUMA nodes alone"]
    held = [
        [
            write_cpus(row.nodes),
            row.kind,
            size(row.size_bytes),
            size(_allocatable(report, row)),
            str(row.container),
        ]
        for row in report.memory
    ]
    return [*lines, "", *table(["NUMA", "KIND", "SIZE", "OF", "CONTAINER"], held, width)]


def _cell(number: int | None) -> str:
    return "-" if number is None else str(number)


def _allocatable(report: CpuReport, row: MemoryRow) -> int:
    """Return the bytes of this kind that containers can get of the nodes of the row."""
    every = (one for one in report.allocatable_memory if one.kind == row.kind and set(one.nodes) <= set(row.nodes))
    return sum(one.size_bytes for one in every)


def _holders(cpu: int, given: Iterable[tuple[Holder, CpuSet]]) -> tuple[Holder, ...]:
    return tuple(holder for holder, cpus in given if cpu in cpus)


def _use(cpu: int, alone: Iterable[tuple[Holder, CpuSet]], taken: CpuSet, reserved: CpuSet) -> Use:
    if _holders(cpu, alone):
        return Use.EXCLUSIVE
    return Use.POD if cpu in taken else Use.RESERVED if cpu in reserved else Use.SHARED


def _cpu_row(cpu: int, topology: MachineTopology, holders: tuple[Holder, ...], use: Use) -> CpuRow:
    place = topology.cpus.get(cpu)
    return CpuRow(
        cpu=cpu,
        numa_node=place.numa_node if place else None,
        socket=place.socket if place else None,
        core=place.core if place else None,
        use=use,
        containers=holders,
    )


def _memory_row(block: Mapping[str, Any], container: Holder | None = None) -> MemoryRow:
    return MemoryRow(nodes=tuple(block["nodes"]), kind=block["kind"], size_bytes=block["size"], container=container)


def _pod_row(pod: Mapping[str, Any]) -> WholePodRow:
    cpus = _cpus(pod.get("pod_cpus"))
    return WholePodRow(
        namespace=pod["namespace"],
        pod=pod["name"],
        uid=pod["uid"],
        cpus=write_cpus(cpus),
        pool=write_cpus(cpus.difference(*map(_cpus, (pod.get("cpus") or {}).values()))),
        memory=tuple(_memory_row(block) for block in pod.get("pod_memory") or ()),
    )


def _cpus(text: str | None) -> CpuSet:
    return parse_cpus(text or "") or frozenset()


def _read_streams(agent: Agent) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the node's resources and the admitted pods. Raises OperatorError where podsync does not answer."""
    agent.require("podsync")
    found = agent.streams(_RESOURCES, _ADMITTED)
    resources, admitted = found[_RESOURCES], found[_ADMITTED]
    if resources is None or admitted is None:
        raise agent.silence_of("podsync")
    if "node" not in resources:
        remedy = "bulkhead status shows the processes"
        raise OperatorError("podsync has not read the CPUs of this machine yet", remedy=remedy)
    return resources["node"], list(admitted.values())
