"""Whether an agent can start with the files that are there (node.md 4.10, 4.11): the Go kubelet's messages, and what
to do."""

import pytest

from services.podsync.core.checkpoints.cpu_state import CpuState
from services.podsync.core.checkpoints.memory_state import MemoryState
from services.podsync.core.checkpoints.start_checks import (
    Conflict,
    cpu_conflict,
    memory_conflict,
    start_error,
    unknown_nodes,
)
from services.podsync.core.checkpoints.takeover import cpu_state_of, memory_state_of, placements_of
from services.podsync.core.placement.machine_memory import MemoryTable, NodeMemory
from services.podsync.core.placement.pod_placement import ContainerPlacement, MemoryBlock, PodPlacement
from shared.go_checkpoints.checksums import CheckpointError, Fault
from shared.model.frozen_copy import replace

ALL = frozenset(range(8))
CPU = CpuState(
    policy="static",
    shared_pool=frozenset({0, 1, 6, 7}),
    containers={"u1": {"a": frozenset({2, 3})}, "u2": {"b": frozenset({4, 5})}},
)

WHOLE = replace(CPU, shared_pool=frozenset({0, 1}), pods={"u3": frozenset({6, 7})})
NO_GATE = (
    'pod "u3" has an entry in podEntries: pods that hold resources as a whole need feature gate '
    "PodLevelResourceManagers"
)


def cpu_message(state: CpuState = CPU, **changed: object) -> str | None:
    given = {"policy": "static", "all_cpus": ALL, "reserved": frozenset({0}), **changed}
    found = cpu_conflict(state, **given)  # type: ignore[arg-type]
    return found.message if found else None


def test_an_agent_starts_with_the_file_that_it_left() -> None:
    assert cpu_message() is None
    assert cpu_message(CpuState(policy="static")) is None
    assert cpu_message(CpuState(policy="none"), policy="none", reserved=frozenset()) is None


@pytest.mark.parametrize(
    ("state", "changed", "message"),
    [
        (CPU, {"policy": "none"}, 'configured policy "none" differs from state checkpoint policy "static"'),
        (
            CpuState(policy="none"),
            {},
            'configured policy "static" differs from state checkpoint policy "none"',
        ),
        (
            CPU,
            {"reserved": frozenset({0, 2})},
            'not all reserved cpus: "0,2" are present in defaultCpuSet: "0-1,6-7"',
        ),
        (
            CPU,
            {"strict": True, "reserved": frozenset({0, 2})},
            'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-1,6-7"',
        ),
        (replace(CPU, shared_pool=frozenset()), {}, "default cpuset cannot be empty"),
        (
            replace(CPU, shared_pool=frozenset({0, 1, 4, 6, 7})),
            {},
            'pod: u2, container: b cpuset: "4-5" overlaps with default cpuset "0-1,4,6-7"',
        ),
        (
            CPU,
            {"all_cpus": ALL - {5}},
            'current set of available CPUs "0-4,6-7" doesn\'t match with CPUs in state "0-7"',
        ),
        (WHOLE, {}, NO_GATE),
        (WHOLE, {"pod_level": True}, None),
        (
            replace(WHOLE, shared_pool=frozenset({0, 1, 6})),
            {"pod_level": True},
            'pod: u3 cpuset: "6-7" overlaps with default cpuset "0-1,6"',
        ),
        (
            WHOLE,
            {"pod_level": True, "all_cpus": ALL - {7}},
            'current set of available CPUs "0-6" doesn\'t match with CPUs in state "0-7"',
        ),
    ],
)
def test_a_file_that_differs_has_the_go_kubelets_message(
    state: CpuState, changed: dict[str, object], message: str | None
) -> None:
    assert cpu_message(state, **changed) == message


def test_cpus_that_came_since_are_no_conflict() -> None:
    assert cpu_message(all_cpus=ALL | {8, 9}) is None


def test_under_strict_reservation_the_shared_pool_may_be_empty() -> None:
    full = CpuState(policy="static", containers={"u": {"a": frozenset(range(1, 8))}})
    assert cpu_message(full, strict=True) is None
    assert cpu_message(full, strict=True, all_cpus=ALL - {7}) is not None


def table(free: int, given: int = 0) -> dict[str, MemoryTable]:
    return {
        "memory": MemoryTable(
            total=free + given + 10, system_reserved=10, allocatable=free + given, reserved=given, free=free
        )
    }


BLOCK = MemoryBlock(nodes=frozenset({0, 1}), kind="memory", size=150)
MACHINE = {
    0: NodeMemory(assignments=1, tables=table(0, 100), cells=(0, 1)),
    1: NodeMemory(assignments=1, tables=table(50, 50), cells=(0, 1)),
    2: NodeMemory(tables=table(100), cells=(2,)),
}
MEMORY = MemoryState(policy="Static", machine=MACHINE, containers={"u": {"a": (BLOCK,)}})


def test_the_memory_of_a_group_counts_together() -> None:
    turned = {
        **MACHINE,
        0: replace(MACHINE[0], tables=table(50, 50)),
        1: replace(MACHINE[1], tables=table(0, 100), cells=(1, 0)),
    }
    assert memory_conflict(MEMORY, policy="Static", expected=MACHINE) is None
    assert memory_conflict(MEMORY, policy="Static", expected=turned) is None
    assert memory_conflict(MemoryState(policy="Static"), policy="Static", expected=MACHINE) is None
    assert memory_conflict(MemoryState(policy="None"), policy="None", expected={}) is None


@pytest.mark.parametrize(
    ("expected", "difference"),
    [
        ({0: MACHINE[0], 1: MACHINE[1]}, "the file has the NUMA nodes 0, 1, 2, and the machine 0, 1"),
        (
            {**MACHINE, 2: replace(MACHINE[2], tables=table(90))},
            "node 2 has total 110 of memory in the file, and it should be 100",
        ),
        (
            {**MACHINE, 2: replace(MACHINE[2], tables={"memory": replace(table(100)["memory"], system_reserved=9)})},
            "node 2 has systemReserved 10 of memory in the file, and it should be 9",
        ),
        (
            {**MACHINE, 2: replace(MACHINE[2], tables={**table(100), "hugepages-2Mi": MemoryTable()})},
            "node 2 has memory in the file, and hugepages-2Mi, memory in the machine",
        ),
        (
            {**MACHINE, 1: replace(MACHINE[1], tables={"memory": replace(table(50, 50)["memory"], reserved=60)})},
            "node 0 has reserved 150 of memory in the file, and it should be 160",
        ),
        (
            {**MACHINE, 0: replace(MACHINE[0], assignments=2)},
            "node 0 has 1 assignments with nodes 0, 1 in the file, and 2 with nodes 0, 1 by its entries",
        ),
    ],
)
def test_a_machine_that_differs_is_named(expected: dict[int, NodeMemory], difference: str) -> None:
    found = memory_conflict(MEMORY, policy="Static", expected=expected)
    assert found is not None
    assert found.message == (f"[memorymanager] the expected machine state is different from the real one: {difference}")


def test_a_memory_file_of_another_policy_or_without_its_nodes() -> None:
    found = memory_conflict(MEMORY, policy="None", expected={})
    assert found == Conflict(
        'configured policy "None" differs from state checkpoint policy "Static"', "set memoryManagerPolicy to Static"
    )
    empty = memory_conflict(replace(MEMORY, machine={}), policy="Static", expected=MACHINE)
    assert empty is not None
    assert empty.message == "[memorymanager] machine state can not be empty when it has memory assignments"
    assert unknown_nodes(MEMORY, MACHINE) is None
    unknown = unknown_nodes(MEMORY, [0, 2])
    assert unknown is not None
    assert unknown.message.endswith("(pod: u, container: a) the memory assignment uses the NUMA that does not exist")


def test_the_memory_of_a_whole_pod_needs_the_gate_and_nodes_that_are_there() -> None:
    whole = replace(MEMORY, pods={"u3": (BLOCK,)})
    refused = Conflict(NO_GATE, "set PodLevelResourceManagers to true in featureGates")
    assert memory_conflict(whole, policy="Static", expected=MACHINE) == refused
    assert memory_conflict(whole, policy="Static", expected=MACHINE, pod_level=True) is None
    unknown = unknown_nodes(replace(whole, containers={}), [2])
    assert unknown is not None and "the memory assignment uses the NUMA that does not exist" in unknown.message


def test_the_line_names_the_file_and_what_to_do() -> None:
    path = "/var/lib/kubelet/cpu_manager_state"
    conflict = cpu_conflict(CpuState(policy="none"), policy="static", all_cpus=ALL, reserved=frozenset({0}))
    assert conflict is not None
    assert str(start_error(conflict, "CPU", path)) == (
        'could not restore state from checkpoint: configured policy "static" differs from state checkpoint policy '
        f'"none", please drain this node and delete the CPU manager checkpoint file "{path}" before restarting the '
        "agent (or set cpuManagerPolicy to none)"
    )
    assert str(start_error(CheckpointError(Fault.NOT_JSON, "the file is empty"), "memory", "/m")) == (
        "could not restore state from checkpoint: the file is empty, please drain this node and delete the memory "
        'manager checkpoint file "/m" before restarting the agent'
    )


def test_the_placements_of_a_takeover_are_those_that_are_given_back() -> None:
    placements = placements_of(CPU, MEMORY)
    assert placements == {
        "u": PodPlacement(containers={"a": ContainerPlacement(memory=(BLOCK,))}),
        "u1": PodPlacement(containers={"a": ContainerPlacement(cpus=frozenset({2, 3}))}),
        "u2": PodPlacement(containers={"b": ContainerPlacement(cpus=frozenset({4, 5}))}),
    }
    assert cpu_state_of("static", CPU.shared_pool, placements) == CPU
    assert memory_state_of("Static", MACHINE, placements) == MEMORY
    assert cpu_state_of("none", ALL, placements) == CpuState(policy="none")
    assert memory_state_of("None", MACHINE, placements) == MemoryState(policy="None")


def test_a_pod_to_which_nothing_was_given_has_no_placement() -> None:
    state = CpuState(policy="static", shared_pool=ALL, containers={"u": {"a": frozenset()}, "v": {}})
    assert placements_of(state, None) == {}
    assert placements_of(None, MemoryState(policy="Static", containers={"u": {"a": ()}})) == {}
