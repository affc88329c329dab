"""What the status shows of a pod's resources for each value that its cgroup may have. The expected amounts are worked
out by hand from the conversions of node.md 4.2."""

from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from services.podsync.core.cgroups.pod_resources import actual_resources
from services.podsync.core.node.node_facts import NodeFacts
from shared.host.cgroup_layout import Hierarchies
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.time.clock import SystemClock
from tests.fakes.runtime import FakeRuntime
from tests.unit.podsync.pods import a_container, a_pod

OWN: dict[str, Any] = {
    "requests": {"cpu": "500m", "memory": "256Mi", "hugepages-2Mi": "4Mi"},
    "limits": {"cpu": "1", "memory": "512Mi", "hugepages-2Mi": "4Mi"},
}
POD = a_pod(containers=[a_container("c")], resources=OWN)
V1, V2 = NodeFacts(node_name="node1", cgroup_v2=False), NodeFacts(node_name="node1")
GIVEN = CgroupValues(cpu_shares=512, cpu_quota=100_000, cpu_period=100_000, memory_limit=512 << 20)


def shown(facts: NodeFacts = V1, before: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    """Amounts of the status that are not the allocated ones, such as `{"limits cpu": "2"}`; None = it is not shown."""
    found = actual_resources(POD, replace(GIVEN, **values), facts, before or {})
    kinds = {f"{kind} {name}": found[kind].get(name) for kind, amounts in OWN.items() for name in amounts}
    return {key: text for key, text in kinds.items() if text != OWN[key.split()[0]][key.split()[1]]}


@pytest.mark.parametrize(
    ("facts", "values", "expected"),
    [
        (V1, {}, {}),
        (V2, {"cpu_shares": 501}, {}),  # read of weight 20, which is what 512 shares are written as
        (V1, {"cpu_shares": 1024}, {"requests cpu": "1"}),
        (V1, {"cpu_shares": 102}, {"requests cpu": "100m"}),
        (V2, {"cpu_shares": 999}, {"requests cpu": "975m"}),  # weight 39: 998 shares
        (V1, {"cpu_quota": 250_000}, {"limits cpu": "2500m"}),
        (V1, {"cpu_quota": 20_000, "cpu_period": 20_000}, {}),
        (V1, {"cpu_quota": -1}, {"limits cpu": None}),
        (V1, {"memory_limit": 300 << 20}, {"limits memory": "300Mi"}),
        (V1, {"memory_limit": None}, {"limits memory": None}),
    ],
)
def test_the_values_of_the_cgroup_replace_allocated_amounts(
    facts: NodeFacts, values: dict[str, Any], expected: dict[str, str | None]
) -> None:
    assert shown(facts, **values) == expected


def test_an_amount_that_was_shown_before_stays_where_the_kernel_has_what_follows_from_it() -> None:
    before = {"requests": {"cpu": "333m"}, "limits": {"cpu": "1500m", "memory": "200000001"}}
    values = {"cpu_shares": 320, "cpu_quota": 150_000, "memory_limit": 199_999_488}  # weight 13; 48828 pages
    found = shown(V2, before, **values)
    assert found == {"requests cpu": "333m", "limits cpu": "1500m", "limits memory": "200000001"}


def test_without_a_quota_on_the_node_the_allocated_limit_of_cpu_is_shown() -> None:
    assert shown(replace(V1, cpu_cfs_quota=False), cpu_quota=-1) == {}


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2"])
async def test_the_cgroup_is_read_from_the_files_of_its_hierarchy(tmp_path: Path, layout: str) -> None:
    pod = a_pod("u1", containers=[a_container("c")], resources=OWN)
    v2 = {"cpu.weight": "39", "cpu.max": "50000 100000", "memory.max": "max"}
    v1 = {
        "cpu/cpu.shares": "102",
        "cpu/cpu.cfs_quota_us": "50000",
        "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "9223372036854771712",
    }
    own = "kubepods/burstable/podu1"
    for path, text in (v2 if layout == "v2" else v1).items():
        root, _, name = path.rpartition("/")
        file = tmp_path / root / own / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    roots = {name: tmp_path / name for name in ("cpu", "memory")}
    hierarchies = Hierarchies(
        unified=tmp_path if layout == "v2" else None,
        by_controller={} if layout == "v2" else roots,
        beside=tmp_path / "unified" if layout == "hybrid" else None,
    )
    facts = NodeFacts(node_name="node1", cgroup_driver="cgroupfs", cgroup_v2=layout == "v2")
    cgroups = PodCgroups(facts, hierarchies, FakeRuntime(), SystemClock(), Registry())
    assert await cgroups.resources_of(pod, {}) == {
        "requests": {**OWN["requests"], "cpu": "975m" if layout == "v2" else "100m"},
        "limits": {"cpu": "500m", "hugepages-2Mi": "4Mi"},
    }
    assert await cgroups.resources_of(a_pod("u2", resources=OWN), {}) is None
