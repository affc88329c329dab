"""What a resize of memory requests writes where MemoryQoS protects them (cgroup v2 alone)."""

from typing import Any

import pytest

from services.podsync.core.cgroups.pod_cgroup import CgroupValues, pod_cgroup_values
from services.podsync.core.cri.resize_writes import WriteCgroup, WriteContainer, resize_writes
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from services.podsync.core.pod.instructions import ContainerUpdate
from tests.unit.podsync.play import a_container, a_pod
from tests.unit.podsync.resize_table import MI, amounts

FACTS = NodeFacts(node_name="n", memory_capacity=8 << 30, memory_qos=True, protects_memory=True)


def written(before: str, after: str, facts: NodeFacts = FACTS) -> list[Any]:
    """The values of the pod's cgroup that are written, and the container's memory.low, in order."""
    old, new = (a_pod(containers=[a_container("c", resources=amounts(text))]) for text in (before, after))
    current = pod_cgroup_values(old, facts)
    if not facts.memory_qos:
        current = CgroupValues(cpu_shares=current.cpu_shares, memory_limit=current.memory_limit, memory_low=0)
    update = ContainerUpdate(container="c", container_id="id", given=amounts(before))
    found: list[Any] = []
    for write in resize_writes(new, [update], current, facts):
        if isinstance(write, WriteContainer):
            found.append(("container", int(write.resources.get("unified", {}).get("memory.low", 0)) // MI))
        elif isinstance(write, WriteCgroup):
            values = {
                "limit": write.values.memory_limit,
                "low": write.values.memory_low,
                "min": write.values.memory_min,
            }
            found.append({name: value // MI for name, value in values.items() if value is not None})
    return found


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("100m/64Mi -/256Mi", "100m/128Mi -/256Mi", [{"low": 128}, ("container", 128)]),
        ("100m/128Mi -/256Mi", "100m/64Mi -/256Mi", [("container", 64), {"low": 64}]),
        ("100m/64Mi -/128Mi", "100m/128Mi -/256Mi", [{"limit": 256}, {"low": 128}, ("container", 128)]),
        ("100m/128Mi -/256Mi", "100m/64Mi -/128Mi", [("container", 64), {"low": 64}, {"limit": 128}]),
        ("100m/64Mi 100m/64Mi", "100m/128Mi 100m/128Mi", [{"limit": 128}, {"min": 128}, ("container", 0)]),
    ],
)
def test_what_protects_the_pod_follows_its_request(before: str, after: str, expected: list[Any]) -> None:
    assert written(before, after) == expected


def test_a_request_that_is_removed_protects_neither_the_pod_nor_the_container() -> None:
    before = a_pod(containers=[a_container("c", resources=amounts("100m/64Mi -/256Mi"))])
    after = a_pod(containers=[a_container("c", resources=amounts("100m/- -/256Mi"))])
    update = ContainerUpdate(container="c", container_id="id", given=amounts("100m/64Mi -/256Mi"))
    container, cgroup = resize_writes(after, [update], pod_cgroup_values(before, FACTS), FACTS)
    assert isinstance(container, WriteContainer) and isinstance(cgroup, WriteCgroup)
    unified = container.resources["unified"]
    assert (unified["memory.min"], unified["memory.low"]) == ("0", "0")
    assert (cgroup.values.memory_min, cgroup.values.memory_low) == (0, 0)


def test_without_memory_qos_a_request_is_in_no_file_of_the_pod() -> None:
    facts = NodeFacts(node_name="n", memory_capacity=8 << 30)
    assert written("100m/64Mi -/256Mi", "100m/128Mi -/256Mi", facts) == [("container", 0)]


@pytest.mark.parametrize(
    ("placement", "sent"),
    [(PodPlacement(), {""}), (PodPlacement(containers={"c": ContainerPlacement(cpus=frozenset({2}))}), {"2"})],
)
def test_a_resize_leaves_the_shared_cpus_as_they_are(placement: PodPlacement, sent: set[str]) -> None:
    facts = NodeFacts(node_name="n", shared_cpus="0-1,3", placement=placement)
    before, after = (a_pod(containers=[a_container("c", resources=amounts(t))]) for t in ("1/64Mi -/-", "2/96Mi -/-"))
    update = ContainerUpdate(container="c", container_id="id", given=amounts("1/64Mi -/-"))
    writes = resize_writes(after, [update], pod_cgroup_values(before, facts), facts)
    containers = [write.resources for write in writes if isinstance(write, WriteContainer)]
    assert len(containers) == 2 and {resources.get("cpuset_cpus", "") for resources in containers} == sent
