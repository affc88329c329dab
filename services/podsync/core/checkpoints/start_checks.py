"""Compares the files of the CPU and memory managers with the configuration and the machine (node.md 4.10, 4.11).

The Go kubelet does not start where they differ, because its state is only in these files. This agent has its placements
in its own records, so it differs in two cases: CPUs that came to the machine since join the shared pool, and with
strict-cpu-reservation the shared pool may be empty.
"""

from collections.abc import Iterable

from msgspec import Struct

from services.podsync.core.checkpoints.cpu_state import CpuState
from services.podsync.core.checkpoints.memory_state import MemoryState
from services.podsync.core.placement.machine_memory import MachineMemory
from shared.errors import OperatorError
from shared.go_checkpoints.checksums import CheckpointError
from shared.model.cpu_list import write_cpus
from shared.model.machine_topology import CpuSet

_GATE = "PodLevelResourceManagers"


class Conflict(Struct, frozen=True):
    """Has what the Go kubelet prints, and what else than draining the node solves it ("" = nothing)."""

    message: str
    remedy: str = ""


def cpu_conflict(
    state: CpuState,
    *,
    policy: str,
    all_cpus: CpuSet,
    reserved: CpuSet,
    strict: bool = False,
    pod_level: bool = False,
) -> Conflict | None:
    """Return why an agent with this policy cannot start with the file, None where it can. `all_cpus`: the online ones.
    `reserved` is empty where the policy is none; `strict`: option strict-cpu-reservation; `pod_level`: feature gate
    PodLevelResourceManagers."""
    if different := _policy_conflict(policy, state.policy, "cpuManagerPolicy") or _gate_conflict(state.pods, pod_level):
        return different
    if policy != "static" or not (state.shared_pool or state.containers):
        return None
    pool = state.shared_pool
    if not pool and not strict:
        return Conflict("default cpuset cannot be empty")
    if strict and (kept := reserved & pool):
        what = (
            f'some of strictly reserved cpus: "{write_cpus(kept)}" are present in defaultCpuSet: "{write_cpus(pool)}"'
        )
        return Conflict(what, "switch strict-cpu-reservation off in cpuManagerPolicyOptions")
    if not strict and not reserved <= pool:
        what = f'not all reserved cpus: "{write_cpus(reserved)}" are present in defaultCpuSet: "{write_cpus(pool)}"'
        return Conflict(what, f'name CPUs among "{write_cpus(pool)}" in reservedSystemCPUs')
    known = pool
    for uid, name, cpus in _exclusive_cpus(state):
        if cpus & pool:
            of_container = f", container: {name}" if name else ""
            what = (
                f'pod: {uid}{of_container} cpuset: "{write_cpus(cpus)}" '
                f'overlaps with default cpuset "{write_cpus(pool)}"'
            )
            return Conflict(what)
        known |= cpus
    available = all_cpus - reserved if strict else all_cpus
    if not known <= available:
        what = (
            f'current set of available CPUs "{write_cpus(available)}" '
            f'doesn\'t match with CPUs in state "{write_cpus(known)}"'
        )
        return Conflict(what, f'bring the CPUs "{write_cpus(known - available)}" online')
    return None


def memory_conflict(
    state: MemoryState, *, policy: str, expected: MachineMemory, pod_level: bool = False
) -> Conflict | None:
    """Return why an agent with this policy cannot start with the file, None where it can. `expected`: the machine's
    memory with the blocks of the file given out; `pod_level`: feature gate PodLevelResourceManagers."""
    different = _policy_conflict(policy, state.policy, "memoryManagerPolicy") or _gate_conflict(state.pods, pod_level)
    if different:
        return different
    if policy != "Static":
        return None
    if not state.machine:
        if state.containers:
            return Conflict("[memorymanager] machine state can not be empty when it has memory assignments")
        return None
    if different_memory := _memory_difference(state.machine, expected):
        what = f"[memorymanager] the expected machine state is different from the real one: {different_memory}"
        return Conflict(what, "restore the memory of the machine, reservedMemory and what it is the sum of")
    return None


def unknown_nodes(state: MemoryState, nodes: Iterable[int]) -> Conflict | None:
    """Return the conflict of a block on a NUMA node that the machine has not: then no memory can be expected."""
    there = frozenset(nodes)
    for uid in sorted(state.containers.keys() | state.pods.keys()):
        named = {**state.containers.get(uid, {}), "": state.pods.get(uid, ())}
        for name, blocks in sorted(named.items()):
            if any(not block.nodes <= there for block in blocks):
                what = f"(pod: {uid}, container: {name}) the memory assignment uses the NUMA that does not exist"
                return Conflict(f"[memorymanager] {what}")
    return None


def start_error(why: Conflict | CheckpointError, manager: str, path: str) -> OperatorError:
    """Return the one line for the operator. `manager`: CPU or memory."""
    message = why.message if isinstance(why, Conflict) else str(why)
    what = (
        f"could not restore state from checkpoint: {message}, please drain this node and delete the {manager} manager "
        f'checkpoint file "{path}" before restarting the agent'
    )
    return OperatorError(what, remedy=f"or {why.remedy}" if isinstance(why, Conflict) and why.remedy else "")


def _policy_conflict(configured: str, written: str, key: str) -> Conflict | None:
    if configured == written:
        return None
    what = f'configured policy "{configured}" differs from state checkpoint policy "{written}"'
    return Conflict(what, f"set {key} to {written}" if written.isalpha() else "")


def _gate_conflict(pods: Iterable[str], pod_level: bool) -> Conflict | None:
    """Return the conflict of pods that have CPUs or memory as a whole, which only the feature gate permits."""
    if pod_level or not pods:
        return None
    return Conflict(
        f'pod "{min(pods)}" has an entry in podEntries: pods that hold resources as a whole need feature gate {_GATE}',
        f"set {_GATE} to true in featureGates",
    )


def _exclusive_cpus(state: CpuState) -> list[tuple[str, str, CpuSet]]:
    """Return the CPUs of each container by UID and name, and those of whole pods with the name ""."""
    of_containers = [
        (uid, name, cpus) for uid, containers in state.containers.items() for name, cpus in containers.items()
    ]
    return sorted([*of_containers, *((uid, "", cpus) for uid, cpus in state.pods.items())], key=lambda entry: entry[:2])


def _memory_difference(written: MachineMemory, expected: MachineMemory) -> str:
    """Return the first difference. What is given out and free counts for the nodes of a group together: which of them
    a block was taken from depends on the order of the blocks."""
    if set(written) != set(expected):
        return f"the file has the NUMA nodes {_listed(written)}, and the machine {_listed(expected)}"
    for number, node in sorted(written.items()):
        other = expected[number]
        if node.assignments != other.assignments or set(node.cells) != set(other.cells):
            return (
                f"node {number} has {node.assignments} assignments with nodes {_listed(node.cells)} in the file, "
                f"and {other.assignments} with nodes {_listed(other.cells)} by its entries"
            )
        if set(node.tables) != set(other.tables):
            kinds = [", ".join(sorted(tables)) or "none" for tables in (node.tables, other.tables)]
            return f"node {number} has {kinds[0]} in the file, and {kinds[1]} in the machine"
        for kind, table in sorted(node.tables.items()):
            mine = {name: getattr(table, name) for name in ("total", "system_reserved", "allocatable")}
            theirs = {name: getattr(other.tables[kind], name) for name in mine}
            for name in ("reserved", "free"):
                mine[name] = sum(
                    getattr(written[cell].tables[kind], name) for cell in _group(node.cells, written, kind)
                )
                theirs[name] = sum(
                    getattr(expected[cell].tables[kind], name) for cell in _group(node.cells, expected, kind)
                )
            for name, amount in mine.items():
                if amount != theirs[name]:
                    shown = name.replace("_r", "R")
                    return f"node {number} has {shown} {amount} of {kind} in the file, and it should be {theirs[name]}"
    return ""


def _group(cells: Iterable[int], machine: MachineMemory, kind: str) -> list[int]:
    return [cell for cell in cells if cell in machine and kind in machine[cell].tables]


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"
