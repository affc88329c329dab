"""An oracle of a whole pod's placement, written from node.md 4.10 to 4.12: the hints of CPUs and memory over all sets
of NUMA nodes, their merge over all combinations, and CPUs that are the best of all subsets."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

from services.podsync.core.placement.hint import Hint, Hints
from shared.model.machine_topology import CpuSet, MachineTopology
from tests.unit.podsync.placement.cpu_oracle import best_cpus
from tests.unit.podsync.placement.machines import GIB
from tests.unit.podsync.placement.memory_oracle import Mask, MemoryOracle, RefusedError, ended_before
from tests.unit.podsync.placement.merging_oracle import expected_merge
from tests.unit.podsync.placement.pod_level_rules import amount, leaves_none, moments

Json = dict[str, Any]
# Of a whole pod: its CPUs and blocks, and by container the CPUs that it has alone and those that it shares.
Whole = tuple[CpuSet, list[tuple[Mask, str, int]], dict[str, tuple[CpuSet, CpuSet]]]
Given = tuple[CpuSet, list[tuple[Mask, str, int]], frozenset[int] | None]  # CPUs, blocks, and the nodes of the hint


class RejectedError(Exception):
    """Has the reason and the message of the rejection."""


class NodeOracle:
    """Has a node with the static policies without options, and what each container has by pod and name."""

    def __init__(
        self, topology: MachineTopology, reserved: CpuSet, capacity: dict[int, dict[str, int]], policy: str, scope: str
    ) -> None:
        self.topology, self.reserved, self.policy, self.scope = topology, reserved, policy, scope
        self.memory = MemoryOracle(capacity)
        self.cpus: dict[tuple[str, str], CpuSet] = {}
        self.distances = {node: dict(numa.distances) for node, numa in topology.nodes.items()}

    def place(self, pod: Json, *, closest: bool) -> dict[str, Given]:
        """Return what each container of a Guaranteed pod gets. Raise RejectedError."""
        uid = pod["metadata"]["uid"]
        with self._unchanged_by_rejection(uid):
            affinities = self._place(pod, closest)
        return {
            name: (self.cpus.get((uid, name), frozenset()), self.memory.entries[uid, name], nodes)
            for name, nodes in affinities.items()
        }

    def place_whole(self, pod: Json, *, closest: bool) -> Whole:
        """Return what a pod with resources of its own gets where whole pods are aligned, and what each container has
        alone or shares. Raise RejectedError."""
        uid = pod["metadata"]["uid"]
        count, size = amount(pod["spec"], "cpu"), amount(pod["spec"], "memory")
        first = pod["spec"]["containers"][0]["name"]
        with self._unchanged_by_rejection(uid):
            hint = self._merged(count, {"memory": size}, frozenset(), pod, first, closest)
            if count:
                self.cpus[uid, ""] = self._take(count, self._free(), hint)
                self._refuse_an_empty_pool(pod, "cpu")
            self.memory.allocate(pod, "", {"memory": size}, hint)
            self._refuse_an_empty_pool(pod, "memory")
        whole = self.cpus.get((uid, ""), frozenset())
        return whole, self.memory.entries[uid, ""], self._parts(pod, whole) if whole else {}

    @contextmanager
    def _unchanged_by_rejection(self, uid: str) -> Iterator[None]:
        """Take back what was given to a pod that is rejected after all, and give the reason and the message."""
        try:
            yield
        except (RefusedError, RejectedError) as error:
            self.remove(uid)
            if isinstance(error, RejectedError):
                raise
            text = str(error) if str(error).startswith("not enough cpus") else f"[memorymanager] {error}"
            message = f"Allocate failed due to {text}, which is unexpected"
            raise RejectedError("UnexpectedAdmissionError", message) from error

    @staticmethod
    def _refuse_an_empty_pool(pod: Json, kind: str) -> None:
        if leaves_none(pod, kind):
            raise RejectedError("EmptyPodSharedPoolError")

    def _parts(self, pod: Json, whole: CpuSet) -> dict[str, tuple[CpuSet, CpuSet]]:
        """Return the own and the shared CPUs of each container. Those that run to the end take theirs first; an init
        container keeps off what sidecars beside it share, as far as there are other CPUs."""
        *starting, last = moments(pod)
        own: dict[str, CpuSet] = {}
        for container in last:
            left = whole.difference(*own.values())
            own[container["name"]] = best_cpus(self.topology, left, amount(container, "cpu"))
        pool = whole.difference(*own.values())
        parts = {name: (cpus, frozenset() if cpus else pool) for name, cpus in own.items()}
        for *sidecars, container in starting:
            names = [sidecar["name"] for sidecar in sidecars]
            runnable, count = whole.difference(*(own[name] for name in names)), amount(container, "cpu")
            if not count:
                parts[container["name"]] = frozenset(), runnable
                continue
            sharing = [name for name in names if parts[name][1]]
            apart = runnable - parts[sharing[0]][1] if sharing else frozenset()
            cpus = best_cpus(self.topology, apart, min(count, len(apart)))
            cpus |= best_cpus(self.topology, runnable - cpus, count - len(cpus))
            parts[container["name"]] = cpus, frozenset()
            parts |= {name: (parts[name][0], parts[name][1] - cpus) for name in sharing}
        return parts

    def _place(self, pod: Json, closest: bool) -> dict[str, frozenset[int] | None]:
        uid, chosen, affinities = pod["metadata"]["uid"], Hint(None, False), {}
        if self.policy != "none" and self.scope == "pod":
            most = at_one_time(pod)
            no_name = pod["spec"]["containers"][0]["name"]  # nothing is reusable before the first container
            chosen = self._merged(most.pop("cpu"), most, frozenset(), pod, no_name, closest)
        for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
            name, wanted = container["name"], requests_of(container)
            count, reusable = wanted.pop("cpu"), self._reusable(pod, name)
            if self.policy != "none" and self.scope == "container":
                chosen = self._merged(count, wanted, reusable, pod, name, closest)
            affinities[name] = chosen.nodes
            if count:
                self.cpus[uid, name] = self._take(count, self._free() | reusable, chosen)
            self.memory.allocate(pod, name, wanted, chosen)
        return affinities

    def remove(self, uid: str) -> None:
        """Give back what the pod's containers have."""
        self.cpus = {entry: cpus for entry, cpus in self.cpus.items() if entry[0] != uid}
        self.memory.remove(uid)
        self.memory.settle()

    def _merged(
        self, count: int, wanted: dict[str, int], reusable: CpuSet, pod: Json, name: str, closest: bool
    ) -> Hint:
        memory = tuple(Hint(frozenset(mask), yes) for mask, yes in self.memory.hints(pod, name, wanted))
        providers: list[Hints] = [self._cpu_hints(count, reusable), dict.fromkeys(wanted, memory) if memory else {}]
        nodes = tuple(self.topology.nodes)
        hint, admitted = expected_merge(self.policy, nodes, self.distances, providers, closest=closest)
        if not admitted:
            raise RejectedError("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
        return hint

    def _cpu_hints(self, count: int, reusable: CpuSet) -> Hints:
        if not count:
            return {}
        nodes = sorted({cpu.numa_node for cpu in self.topology.cpus.values()})
        masks = [frozenset(some) for size in range(1, len(nodes) + 1) for some in combinations(nodes, size)]
        on = {mask: self.topology.cpus_of_nodes(mask) for mask in masks}
        smallest = min((len(mask) for mask in masks if len(on[mask]) >= count), default=len(nodes))
        free = self._free()
        possible = [mask for mask in masks if reusable <= on[mask] and len(reusable | (free & on[mask])) >= count]
        return {"cpu": tuple(Hint(mask, len(mask) == smallest) for mask in possible)}

    def _free(self) -> CpuSet:
        return self.topology.all_cpus - self.reserved - frozenset().union(*self.cpus.values())

    def _reusable(self, pod: Json, name: str) -> CpuSet:
        """Return the CPUs of plain init containers before this one that none has since that still runs."""
        uid = pod["metadata"]["uid"]
        ended = ended_before(pod, name)
        given = {other: cpus for (owner, other), cpus in self.cpus.items() if owner == uid}
        running = frozenset().union(*(cpus for other, cpus in given.items() if other not in ended))
        return frozenset().union(*(given.get(other, frozenset()) for other in ended)) - running

    def _take(self, count: int, pool: CpuSet, hint: Hint) -> CpuSet:
        first: CpuSet = frozenset()
        if hint.nodes is not None:
            aligned = pool & self.topology.cpus_of_nodes(hint.nodes)
            first = best_cpus(self.topology, aligned, min(count, len(aligned)))
        missing, left = count - len(first), pool - first
        if missing > len(left):
            text = f"not enough cpus available to satisfy request: requested={missing}, available={len(left)}"
            raise RefusedError(text)
        return first | best_cpus(self.topology, left, missing)


def requests_of(container: Json) -> dict[str, int]:
    """Return whole CPUs, 0 for a fraction, and bytes of memory."""
    requests = container["resources"]["requests"]
    cpu = 0 if requests["cpu"].endswith("m") else int(requests["cpu"])
    return {"cpu": cpu, "memory": int(requests["memory"].removesuffix("Gi")) * GIB}


def at_one_time(pod: Json) -> dict[str, int]:
    """Return the most that containers of the pod request at one time (node.md 4.19)."""
    every = [[requests_of(container) for container in running] for running in moments(pod)]
    return {kind: max(sum(request[kind] for request in running) for running in every) for kind in ("cpu", "memory")}
