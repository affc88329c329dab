"""CPUs and memory are given together as an oracle gives them that looks at all sets and all combinations."""

import os
import random
from collections.abc import Iterable
from typing import Any

import pytest

from services.podsync.core.placement.cpu_policy import CpuSettings
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.memory_accounting import MemorySettings
from services.podsync.core.placement.merging import TopologyPolicy
from services.podsync.core.placement.placing import NodePlacer, PlacementSettings, TopologyScope, TopologySettings
from services.podsync.core.placement.pod_placement import MemoryBlock, PodPlacement
from shared.model.machine_topology import MachineTopology
from tests.unit.examples import examples
from tests.unit.podsync.placement.machines import GIB, a_container, a_machine, a_pod
from tests.unit.podsync.placement.placing_oracle import Given, NodeOracle, RejectedError
from tests.unit.podsync.placement.pod_level_rules import amount, moments

Json = dict[str, Any]
MACHINES = {
    "two nodes": a_machine(2, 2, 8, 1),
    "two nodes, SMT": a_machine(2, 2, 4, 2),
    "four nodes in two sockets": a_machine(2, 4, 8, 1),
}
FIRST = int(os.environ.get("FIRST_SEED", "0"))
SEQUENCES = 100 if os.environ.get("NIGHT") else 8  # for each machine, policy and scope


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("scope", TopologyScope)
@pytest.mark.parametrize("policy", TopologyPolicy)
@pytest.mark.parametrize("machine", MACHINES)
def test_pods_that_come_and_go_get_what_the_reference_gives(
    machine: str, policy: TopologyPolicy, scope: TopologyScope
) -> None:
    outcomes = set()
    for seed in range(FIRST, FIRST + examples(SEQUENCES)):
        run = Run(random.Random(f"{machine} {policy} {scope} {seed}"), MACHINES[machine], policy, scope)
        for number in range(10):
            outcomes.add(run.step(f"pod-{number}"))
    assert {"placed", "removed"} <= outcomes
    aligns_pods = scope is TopologyScope.POD and policy is not TopologyPolicy.NONE
    assert "placed as a whole" not in outcomes or aligns_pods


class Run:
    """Has a node with its pods, and the oracle's."""

    def __init__(
        self, draw: random.Random, topology: MachineTopology, policy: TopologyPolicy, scope: TopologyScope
    ) -> None:
        self.draw = draw
        self.closest = draw.random() < 0.3
        reserved = frozenset({draw.choice(sorted(topology.all_cpus))})
        withheld = {node: {"memory": draw.choice((0, 1, 2)) * GIB} for node in topology.nodes}
        self.aligns_pods = scope is TopologyScope.POD and policy is not TopologyPolicy.NONE
        self.placer = NodePlacer(
            topology,
            PlacementSettings(
                cpu=CpuSettings(static=True, reserved_cpus=reserved, reserved_count=1),
                memory=MemorySettings(static=True, reserved=withheld),
                topology=TopologySettings(policy=policy, scope=scope, prefer_closest=self.closest),
                pod_level=True,
            ),
        )
        capacity = {node: {"memory": numa.memory - withheld[node]["memory"]} for node, numa in topology.nodes.items()}
        self.oracle = NodeOracle(topology, reserved, capacity, policy.value, scope.value)
        self.pods: dict[str, PodPlacement] = {}

    def step(self, uid: str) -> str:
        """Remove a pod, or place one; return what became of it."""
        if self.pods and self.draw.random() < 0.3:
            gone = self.draw.choice(sorted(self.pods))
            del self.pods[gone]
            self.oracle.remove(gone)
            return "removed"
        pod = draw_pod(self.draw, uid)
        if self.draw.random() < 0.4:
            give_resources(pod, self.draw)
        if "resources" in pod["spec"] and self.aligns_pods:
            return self._place_whole(pod, uid)
        # Containers that are not Guaranteed by themselves get nothing.
        eligible = {
            kind: [container for container in pod["spec"][kind] if amount(container, "memory")]
            for kind in ("initContainers", "containers")
        }
        expected_of = {**pod, "spec": eligible}
        try:
            placement = self.placer.place(pod, self.pods.values())
        except PlacementError as error:
            with pytest.raises(RejectedError) as rejected:
                self.oracle.place(expected_of, closest=self.closest)
            assert (error.reason, str(error)) == rejected.value.args
            return error.reason
        expected = self.oracle.place(expected_of, closest=self.closest)
        assert given_by(placement) == expected
        self.pods[uid] = placement
        return "placed"

    def _place_whole(self, pod: Json, uid: str) -> str:
        """Place a pod with resources of its own; return what became of it."""
        try:
            placement = self.placer.place(pod, self.pods.values())
        except PlacementError as error:
            with pytest.raises(RejectedError) as rejected:
                self.oracle.place_whole(pod, closest=self.closest)
            assert rejected.value.args in ((error.reason, str(error)), (error.reason,))
            return error.reason
        cpus, blocks, parts = self.oracle.place_whole(pod, closest=self.closest)
        assert (placement.cpus, plain(placement.memory)) == (cpus, blocks)
        assert {name: (given.cpus, given.pool) for name, given in placement.containers.items()} == {
            container["name"]: parts.get(container["name"], (frozenset(), frozenset()))
            for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
        }
        self.pods[uid] = placement
        return "placed as a whole"


def given_by(placement: PodPlacement) -> dict[str, Given]:
    return {
        name: (
            given.cpus,
            plain(given.memory),
            given.affinity,
        )
        for name, given in placement.containers.items()
    }


def plain(blocks: Iterable[MemoryBlock]) -> list[tuple[tuple[int, ...], str, int]]:
    return [(tuple(sorted(block.nodes)), block.kind, block.size) for block in blocks]


def give_resources(pod: Json, draw: random.Random) -> None:
    """Give the pod resources of its own, and take those, or the limits, of some containers."""
    for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
        if draw.random() < 0.5:
            container["resources"] = draw.choice(({}, {"requests": container["resources"]["requests"]}))
    most = {
        kind: max(sum(amount(container, kind) for container in running) for running in moments(pod))
        for kind in ("cpu", "memory")
    }
    cpu = most["cpu"] + draw.choice((0, 0, 1, 2))
    memory = most["memory"] // GIB + draw.choice((0, 1, 4))
    amounts = {"cpu": str(cpu) if cpu else "1500m", "memory": f"{memory or 1}Gi"}
    pod["spec"]["resources"] = {"requests": amounts, "limits": amounts}


def draw_pod(draw: random.Random, uid: str) -> Json:
    """Return a Guaranteed pod; a node has 16 GiB and 2 or 4 CPUs."""

    def container(name: str, **more: Any) -> Json:
        cpu, memory = draw.choice(("500m", "1", "1", "2", "3", "5")), draw.choice((1, 3, 6, 10, 18))
        return a_container(name, cpu, f"{memory}Gi", **more)

    init = [
        container(f"init-{place}", **({"restartPolicy": "Always"} if draw.random() < 0.3 else {}))
        for place in range(draw.choice((0, 0, 1, 2)))
    ]
    regular = [container(f"app-{place}") for place in range(draw.choice((1, 1, 2)))]
    return a_pod(*regular, init=tuple(init), uid=uid)
