"""Random sequences of admitted and removed pods: memory is given as the oracle gives it, and no byte twice."""

import os
import random
from collections.abc import Mapping
from typing import Any

import pytest

from services.podsync.core.placement.hint import Hint, PlacementError
from services.podsync.core.placement.machine_memory import MachineMemory
from services.podsync.core.placement.memory_policy import MemoryPolicy
from services.podsync.core.placement.merging import TopologyPolicy, merge
from services.podsync.core.placement.pod_placement import NOT_PLACED, ContainerPlacement, MemoryBlock, PodPlacement
from tests.unit.examples import examples
from tests.unit.podsync.placement.memory_machines import PAGES, container_of, machine_of, pod_of, static_policy
from tests.unit.podsync.placement.memory_oracle import MemoryOracle, RefusedError

Json = dict[str, Any]
MACHINES = {
    "one node": machine_of(20),
    "two nodes": machine_of(20, 20, pages=(4, 4)),
    "uneven nodes": machine_of(12, 30, 4, pages=(0, 8)),
    "four nodes": machine_of(12, 12, 12, 12, pages=(2, 2, 0, 4)),
}
RESERVED = {0: 2}
FIRST = int(os.environ.get("FIRST_SEED", "0"))
SEQUENCES = 250 if os.environ.get("NIGHT") else 12  # for each machine and policy


@pytest.mark.long
@pytest.mark.parametrize("policy", TopologyPolicy)
@pytest.mark.parametrize("machine", MACHINES)
def test_random_sequences_give_memory_as_the_reference_does_and_no_byte_twice(
    machine: str, policy: TopologyPolicy
) -> None:
    refused = given = 0
    for seed in range(FIRST, FIRST + examples(SEQUENCES)):
        run = Run(random.Random(seed), machine, policy)
        for _ in range(12):
            run.step()
            run.check()
        refused, given = refused + run.refused, given + run.given
    assert refused
    assert given


class Run:
    """Has a machine with its pods, and the oracle's."""

    def __init__(self, draw: random.Random, machine: str, policy: TopologyPolicy) -> None:
        self.draw, self.topology, self.topology_policy = draw, MACHINES[machine], policy
        self.policy: MemoryPolicy = static_policy(self.topology, RESERVED)
        self.capacity = {
            node: {kind: table.allocatable for kind, table in memory.tables.items()}
            for node, memory in self.policy.machine_memory(()).items()
        }
        self.oracle = MemoryOracle(self.capacity)
        self.pods: dict[str, PodPlacement] = {}
        self.number = self.refused = self.given = 0

    def step(self) -> None:
        if self.pods and self.draw.random() < 0.35:
            gone = self.draw.choice(sorted(self.pods))
            del self.pods[gone]
            self.oracle.remove(gone)
            return
        self.number += 1
        pod = draw_pod(self.draw, f"pod-{self.number}")
        placement = NOT_PLACED
        for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
            after = self.place(pod, container, placement)
            if after is None:
                self.oracle.remove(pod["metadata"]["uid"])
                self.refused += 1
                return
            placement = after
        self.pods[pod["metadata"]["uid"]] = placement
        self.given += 1

    def place(self, pod: Json, container: Json, own: PodPlacement) -> PodPlacement | None:
        name, others = container["name"], tuple(self.pods.values())
        wanted = {kind: int(size) for kind, size in sorted(container["resources"]["requests"].items()) if kind != "cpu"}
        hints = self.policy.hints(pod, container, others, own)
        expected = tuple(Hint(frozenset(mask), yes) for mask, yes in self.oracle.hints(pod, name, wanted))
        assert hints == (dict.fromkeys(wanted, expected) if expected else {})
        affinity, admitted = merge(self.topology_policy, self.topology, [self.draw_cpu_hints(), hints])
        if not admitted:
            return None
        try:
            changed = self.policy.allocate(pod, container, affinity, others, own)
        except PlacementError as error:
            with pytest.raises(RefusedError) as refused:
                self.oracle.allocate(pod, name, wanted, affinity)
            assert str(error) == f"[memorymanager] {refused.value}"
            return None
        self.oracle.allocate(pod, name, wanted, affinity)
        containers = dict(own.containers)
        for owner, blocks in changed.items():
            containers[owner] = ContainerPlacement(memory=blocks)
        return PodPlacement(containers=containers)

    def draw_cpu_hints(self) -> dict[str, tuple[Hint, ...]]:
        """Return what a CPU manager with this or that CPU free may answer."""
        nodes = sorted(self.topology.nodes)
        some = frozenset(self.draw.sample(nodes, self.draw.randint(1, len(nodes))))
        one = frozenset({self.draw.choice(sorted(some))})
        return {"cpu": (Hint(one, True), Hint(some, len(some) == 1))} if self.draw.random() < 0.6 else {}

    def check(self) -> None:
        machine = self.policy.machine_memory(self.pods.values())
        blocks = [
            block
            for placement in self.pods.values()
            for container in placement.containers.values()
            for block in container.memory
        ]
        check_invariants(machine, self.capacity, blocks)
        assert {
            (uid, name): [(tuple(sorted(block.nodes)), block.kind, block.size) for block in container.memory]
            for uid, placement in self.pods.items()
            for name, container in placement.containers.items()
        } == self.oracle.entries
        for node, memory in machine.items():
            assert (memory.assignments, memory.cells) == (self.oracle.assignments[node], self.oracle.cells[node])
            for kind in memory.tables:
                free = [self.oracle.free[cell].get(kind, 0) for cell in memory.cells]
                assert sum(free) == sum(table_free(machine, cell, kind) for cell in memory.cells)


def table_free(machine: MachineMemory, node: int, kind: str) -> int:
    table = machine[node].tables.get(kind)
    return table.free if table else 0


def check_invariants(
    machine: MachineMemory, capacity: Mapping[int, Mapping[str, int]], blocks: list[MemoryBlock]
) -> None:
    groups = {block.nodes for block in blocks}
    assert sum(map(len, groups)) == len(frozenset().union(*groups))  # groups do not overlap
    for nodes in groups:
        for kind in ("memory", PAGES):
            held = sum(block.size for block in blocks if block.nodes == nodes and block.kind == kind)
            assert held <= sum(
                capacity[node].get(kind, 0) for node in nodes
            )  # no byte twice, and none that is reserved
            assert held == sum(table.reserved for node in nodes if (table := machine[node].tables.get(kind)))
    for memory in machine.values():
        for kind, table in memory.tables.items():
            pages = sum(other.total for name, other in memory.tables.items() if name != kind and kind == "memory")
            assert table.total == pages + table.system_reserved + table.allocatable
            assert table.allocatable == table.reserved + table.free
            assert min(table.reserved, table.free) >= 0


def draw_pod(draw: random.Random, uid: str) -> Json:
    init = []
    for number in range(draw.choice((0, 0, 1, 2, 3))):
        sidecar = {"restartPolicy": "Always"} if draw.random() < 0.3 else {}
        init.append(draw_container(draw, f"init-{number}", sidecar))
    containers = [draw_container(draw, f"app-{number}", {}) for number in range(draw.choice((1, 1, 2)))]
    return pod_of(*containers, init=tuple(init), uid=uid)


def draw_container(draw: random.Random, name: str, more: Json) -> Json:
    memory = draw.choice((1, 2, 3, 5, 8, 13, 21))
    return container_of(name, memory, draw.choice((0, 0, 0, 1, 3)), **more)
