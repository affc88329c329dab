"""A node on which pods come, go and are placed, with the rules of node.md 4.10 to 4.12 that must hold at any time.

The verdicts are found by brute force over all sets of NUMA nodes, from sums alone and without any choice of CPUs.
"""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from services.podsync.core.placement.cpu_policy import CpuOption, CpuSettings
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.memory_accounting import MemorySettings
from services.podsync.core.placement.merging import TopologyPolicy
from services.podsync.core.placement.placing import NodePlacer, PlacementSettings, TopologyScope, TopologySettings
from services.podsync.core.placement.pod_placement import (
    NOT_PLACED,
    ContainerPlacement,
    PodPlacement,
    cpus_of,
    memory_of,
)
from services.podsync.core.pod.placement_format import plain_placement, read_placement
from shared.model.machine_topology import CpuSet, MachineTopology
from tests.unit.podsync.placement.machines import GIB, a_container, a_pod
from tests.unit.podsync.placement.pod_level_rules import check_division, leaves_none, moments

Json = dict[str, Any]
_NONE = {"cpu": "0", "memory": "0Gi"}
_WITHHELD = {0: {"memory": GIB}}
_OPTIONS: tuple[frozenset[CpuOption], ...] = (
    frozenset(),
    frozenset({CpuOption.FULL_PCPUS_ONLY}),
    frozenset({CpuOption.FULL_PCPUS_ONLY, CpuOption.STRICT_CPU_RESERVATION}),
    frozenset({CpuOption.DISTRIBUTE_ACROSS_NUMA}),
    frozenset({CpuOption.DISTRIBUTE_ACROSS_NUMA, CpuOption.FULL_PCPUS_ONLY}),
    frozenset({CpuOption.PREFER_ALIGN_BY_UNCORE_CACHE}),
    frozenset({CpuOption.DISTRIBUTE_ACROSS_CORES, CpuOption.STRICT_CPU_RESERVATION}),
    frozenset({CpuOption.ALIGN_BY_SOCKET}),
)


def draw_settings(policy: TopologyPolicy, topology: MachineTopology, chance: random.Random) -> PlacementSettings:
    """Return settings with this topology policy and some options that go together."""
    options = chance.choice(_OPTIONS)
    if policy is TopologyPolicy.SINGLE_NUMA_NODE or len(topology.sockets_of_nodes(frozenset(topology.cpu_nodes))) > len(
        topology.cpu_nodes
    ):
        options -= {CpuOption.ALIGN_BY_SOCKET}
    reserved = frozenset(chance.sample(sorted(topology.all_cpus), chance.choice((0, 1, 1, 2))))
    return PlacementSettings(
        cpu=CpuSettings(
            static=True, options=options, reserved_cpus=reserved, reserved_count=len(reserved) or chance.choice((1, 2))
        ),
        memory=MemorySettings(static=chance.random() < 0.5, reserved=_WITHHELD),
        topology=TopologySettings(
            policy=policy, scope=chance.choice([*TopologyScope]), prefer_closest=chance.random() < 0.3
        ),
        pod_level=chance.random() < 0.7,
    )


def draw_pod(uid: str, largest: int, chance: random.Random) -> Json:
    """Return a pod of mostly one container; mostly Guaranteed, with whole CPUs."""

    def container(name: str, **more: Any) -> Json:
        cpu = chance.choice(("500m", "1", "1", "2", "2", "3", "4", str(largest), str(largest + 1)))
        return a_container(name, cpu, f"{chance.choice((1, 1, 2, 4, 9, 20))}Gi", **more)

    regular = [container(f"c{place}") for place in range(chance.choice((1, 1, 1, 2, 3)))]
    init = [
        container(f"i{place}", **({"restartPolicy": "Always"} if chance.random() < 0.4 else {}))
        for place in range(chance.choice((0, 0, 0, 1, 2)))
    ]
    if chance.random() < 0.1:
        regular[0]["resources"]["requests"] = {"cpu": "100m"}
    elif chance.random() < 0.4:
        return _with_own_resources(a_pod(*regular, init=tuple(init), uid=uid), chance)
    return a_pod(*regular, init=tuple(init), uid=uid)


def _with_own_resources(pod: Json, chance: random.Random) -> Json:
    """Return the pod with resources of its own, some of its containers without any."""
    for container in containers_of(pod):
        if chance.random() < 0.5:
            container["resources"] = {}
    whole = f"{_requested_by_pod(pod) + chance.choice((0, 0, 1, 2))}"
    cpu = chance.choice((whole, whole, whole, f"{whole}500m") if whole != "0" else ("1", "2", "4", "500m"))
    amounts = {"cpu": cpu, "memory": f"{_memory_of(pod) // GIB + chance.choice((0, 1, 3))}Gi"}
    if amounts["memory"] == "0Gi":
        amounts["memory"] = "1Gi"
    pod["spec"]["resources"] = {"requests": amounts, "limits": amounts}
    return pod


def containers_of(pod: Json) -> list[Json]:
    """Return the init containers, and then the regular ones."""
    return [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]


@dataclass
class World:
    """Has one node and its active pods. `random` decides what happens."""

    topology: MachineTopology
    settings: PlacementSettings
    chance: random.Random
    active: dict[str, tuple[Json, PodPlacement]] = field(default_factory=dict)
    without_hint: set[str] = field(default_factory=set)  # pods whose memory no NUMA nodes could give as a whole
    admitted: int = 0
    rejected: int = 0

    def __post_init__(self) -> None:
        self.placer = NodePlacer(self.topology, self.settings)
        self.nodes = sorted(self.topology.nodes)
        self.sets = [
            frozenset(some) for size in range(1, len(self.nodes) + 1) for some in combinations(self.nodes, size)
        ]

    def take_step(self, number: int) -> None:
        """Admit a pod, remove one, or start again with what is saved; and look whether all rules hold."""
        chance = self.chance.random()
        if chance < 0.6:
            self._admit(f"pod{number}")
        elif chance < 0.9 and self.active:
            del self.active[self.chance.choice(sorted(self.active))]
        else:
            self._restart()
        self._check()

    def _admit(self, uid: str) -> None:
        largest = len(self.topology.cpus) // len(self.topology.cpu_nodes)
        pod = draw_pod(uid, largest, self.chance)
        expected = self._expected_reason(pod)
        if not _is_burstable(pod) and not self._sets_for_memory(_memory_of(pod))[0]:
            # There is no hint of memory then, so each container may get memory of other nodes.
            self.without_hint.add(uid)
        try:
            placement, reason = self.placer.place(pod, self._placements()), ""
            self.active[uid] = pod, placement
            self.admitted += 1
        except PlacementError as error:
            reason = error.reason
            self.rejected += 1
        assert expected is None or reason == expected, (pod, self._story())

    def _restart(self) -> None:
        before = self.placer.shared_pool(self._placements()), self._placements()
        self.placer = NodePlacer(self.topology, self.settings)
        self.active = {
            uid: (pod, read_placement(json.loads(json.dumps(plain_placement(placement)))))
            for uid, (pod, placement) in self.active.items()
        }
        assert (self.placer.shared_pool(self._placements()), self._placements()) == before

    def _placements(self) -> list[PodPlacement]:
        return [placement for _, placement in self.active.values()]

    def _story(self) -> object:
        return self.settings, self._placements()

    # What must hold

    def _check(self) -> None:
        held: dict[int, str] = {}
        for uid, (pod, placement) in self.active.items():
            self._check_pod(pod, placement)
            for cpu in cpus_of(placement):
                assert held.setdefault(cpu, uid) == uid, f"CPU {cpu} belongs to two pods"
        reserved = self.placer.cpus.reserved
        assert not reserved & held.keys() and held.keys() <= self.topology.all_cpus
        strict = CpuOption.STRICT_CPU_RESERVATION in self.settings.cpu.options
        pool = self.placer.shared_pool(self._placements())
        assert pool == self.topology.all_cpus - held.keys() - (reserved if strict else set())

    def _check_pod(self, pod: Json, placement: PodPlacement) -> None:
        if self._is_without(pod):
            assert placement == NOT_PLACED
        elif self._is_whole(pod):
            check_division(pod, placement)
            if CpuOption.FULL_PCPUS_ONLY in self.settings.cpu.options:
                assert self.topology.whole_cores(placement.cpus) == placement.cpus
            whole = ContainerPlacement(cpus=placement.cpus, memory=placement.memory)
            self._check_alignment([whole], len(placement.cpus))
        else:
            self._check_containers(pod, placement)

    def _is_without(self, pod: Json) -> bool:
        """Return whether the pod has resources of its own, for which only the feature gate gives it something."""
        return "resources" in pod["spec"] and not self.settings.pod_level

    def _is_whole(self, pod: Json) -> bool:
        """Return whether the pod has resources of its own, and is placed by these."""
        by_pod = self.settings.topology.scope is TopologyScope.POD
        aligns = self.settings.topology.policy is not TopologyPolicy.NONE
        return "resources" in pod["spec"] and self.settings.pod_level and by_pod and aligns

    def _check_containers(self, pod: Json, placement: PodPlacement) -> None:
        assert not placement.cpus and not placement.memory
        running: CpuSet = frozenset()  # of sidecars, and then of regular containers
        for container in containers_of(pod):
            given = placement.containers.get(container["name"], ContainerPlacement())
            assert len(given.cpus) == (0 if _is_burstable(pod) else _requested(container)) and not given.pool
            assert not given.cpus & running, "a CPU belongs to two containers that run at one time"
            if container in pod["spec"]["containers"] or "restartPolicy" in container:
                running |= given.cpus
            if CpuOption.FULL_PCPUS_ONLY in self.settings.cpu.options:
                assert self.topology.whole_cores(given.cpus) == given.cpus
            if self.settings.topology.scope is TopologyScope.CONTAINER:
                self._check_alignment([given], len(given.cpus))
        has_hint = pod["metadata"]["uid"] not in self.without_hint
        if self.settings.topology.scope is TopologyScope.POD and not _is_burstable(pod) and has_hint:
            self._check_alignment(list(placement.containers.values()), _requested_by_pod(pod))

    def _check_alignment(self, given: list[ContainerPlacement], requested: int) -> None:
        """The policies restricted and single-numa-node promise CPUs and memory on as few NUMA nodes as possible."""
        policy = self.settings.topology.policy
        nodes = self._nodes_of(_cpus(given))
        memory = {node for one in given for block in one.memory for node in block.nodes}
        if policy is TopologyPolicy.SINGLE_NUMA_NODE:
            assert len(nodes | memory) <= 1
        if policy is TopologyPolicy.RESTRICTED and nodes:
            fewest = self._fewest_nodes(requested)
            if CpuOption.ALIGN_BY_SOCKET not in self.settings.cpu.options:
                assert len(nodes) <= fewest
            assert nodes <= memory or not memory or CpuOption.ALIGN_BY_SOCKET in self.settings.cpu.options

    def _nodes_of(self, cpus: Iterable[int]) -> set[int]:
        return {self.topology.cpus[cpu].numa_node for cpu in cpus}

    # Who must be admitted

    def _expected_reason(self, pod: Json) -> str | None:
        """Return the reason of the pod's rejection, "" when it must be admitted, and None when it takes more than sums
        to say. That is so where each of several containers is aligned for itself: its CPUs then decide what is left
        for the next one."""
        settings, containers = self.settings.topology, containers_of(pod)
        by_pod = settings.scope is TopologyScope.POD and settings.policy is not TopologyPolicy.NONE
        if _is_burstable(pod) or self._is_without(pod):
            return ""
        if self._is_whole(pod):
            reason = self._expected_reason(a_pod({"name": "c", "resources": pod["spec"]["resources"]}))
            needs = ["cpu", "memory"] if self.settings.memory.static else ["cpu"]
            none_left = any(leaves_none(pod, kind) for kind in needs)
            return "EmptyPodSharedPoolError" if none_left and reason == "" else reason
        if (len(containers) > 1 and not by_pod) or len(set(map(len, self.topology.cores.values()))) > 1:
            return None
        free = self.placer.shared_pool(self._placements()) - self.placer.cpus.reserved
        whole_cores = CpuOption.FULL_PCPUS_ONLY in self.settings.cpu.options
        usable = self.topology.whole_cores(free) if whole_cores else free
        requested, size = _requested_by_pod(pod), _memory_of(pod)
        if settings.policy is not TopologyPolicy.NONE and not self._is_aligned(requested, usable, size):
            return "TopologyAffinityError"
        if len(containers) > 1 and (whole_cores or requested > len(usable)):
            return None
        if requested and whole_cores and (requested % self.topology.cpus_per_core or requested > len(usable)):
            return "SMTAlignmentError"
        if requested > len(usable):
            return "UnexpectedAdmissionError"
        if self.settings.memory.static and settings.policy is TopologyPolicy.BEST_EFFORT:
            return None  # CPUs may lead to nodes whose memory is given out together with that of others
        return "" if not self.settings.memory.static or not size or self._sets_for_memory(size)[1] else None

    def _is_aligned(self, requested: int, usable: CpuSet, size: int) -> bool:
        policy = self.settings.topology.policy
        if policy is TopologyPolicy.BEST_EFFORT:
            return True
        wanted = [self._preferred_for_cpus(requested, usable)] if requested else []
        if self.settings.memory.static and size:
            possible, preferred = self._sets_for_memory(size)
            wanted += [preferred] if possible else []  # without any possible set there is no hint, and Allocate fails
        agreed = set(self.sets).intersection(*wanted)
        if policy is TopologyPolicy.SINGLE_NUMA_NODE:
            return not wanted or any(len(nodes) == 1 for nodes in agreed)
        return not wanted or bool(agreed)

    def _fewest_nodes(self, requested: int) -> int:
        of_all = {nodes: sum(cpu.numa_node in nodes for cpu in self.topology.cpus.values()) for nodes in self.sets}
        enough = [len(nodes) for nodes, cpus in of_all.items() if cpus >= requested]
        return min(enough, default=len(self.topology.cpu_nodes))

    def _preferred_for_cpus(self, requested: int, usable: CpuSet) -> set[frozenset[int]]:
        fewest = self._fewest_nodes(requested)
        sockets = len(self.topology.sockets_of_nodes(frozenset(self.topology.cpu_nodes)))
        fewest_sockets = -(-fewest * sockets // len(self.topology.cpu_nodes))
        by_socket = CpuOption.ALIGN_BY_SOCKET in self.settings.cpu.options
        return {
            nodes
            for nodes in self.sets
            if sum(self.topology.cpus[cpu].numa_node in nodes for cpu in usable) >= requested
            and (len(nodes) == fewest or (by_socket and len(self.topology.sockets_of_nodes(nodes)) == fewest_sockets))
        }

    def _sets_for_memory(self, size: int) -> tuple[set[frozenset[int]], set[frozenset[int]]]:
        """Return the sets of nodes that can give this memory, and those of them that are as small as possible."""
        allocatable = {
            node: self.topology.nodes[node].memory - _WITHHELD.get(node, {}).get("memory", 0) for node in self.nodes
        }
        group = {node: frozenset({node}) for node in self.nodes}
        given: dict[frozenset[int], int] = {}
        for placement in self._placements():
            for block in memory_of(placement):
                given[block.nodes] = given.get(block.nodes, 0) + block.size
                group.update(dict.fromkeys(block.nodes, block.nodes))
        used = {node for nodes in given for node in nodes}
        large = [nodes for nodes in self.sets if sum(allocatable[node] for node in nodes) >= size]
        possible = {
            nodes
            for nodes in large
            if all(node not in used or group[node] == nodes for node in nodes)
            and sum(allocatable[node] for node in nodes) - given.get(nodes, 0) >= size
        }
        fewest = min(map(len, large), default=0)
        return possible, {nodes for nodes in possible if len(nodes) == fewest}


def _cpus(given: Iterable[ContainerPlacement]) -> CpuSet:
    return frozenset(cpu for one in given for cpu in one.cpus)


def _is_burstable(pod: Json) -> bool:
    return bool(pod["spec"]["containers"][0]["resources"].get("requests") == {"cpu": "100m"})


def _memory_of(pod: Json) -> int:
    """Return the most bytes that containers of the pod request at one time."""
    return max(sum(map(_memory, running)) for running in moments(pod))


def _memory(container: Json) -> int:
    return int(container["resources"].get("requests", _NONE)["memory"].removesuffix("Gi")) * GIB


def _requested(container: Json) -> int:
    cpu = container["resources"].get("requests", _NONE)["cpu"]
    return 0 if cpu.endswith("m") else int(cpu)


def _requested_by_pod(pod: Json) -> int:
    return max(sum(map(_requested, running)) for running in moments(pod))
