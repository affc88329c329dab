"""At which use of memory the kernel notifies pleg (node.md 5.9)."""

from bus.messages.usage import CgroupUsage, NodeUsage, SystemContainerUsage
from services.pleg.core.memory_thresholds import usage_thresholds

MIB = 1 << 20


def cgroup(available: int, working_set: int, usage: int) -> CgroupUsage:
    return CgroupUsage(
        time=0.0,
        memory_available=available * MIB,
        memory_working_set=working_set * MIB,
        memory_usage=usage * MIB,
    )


NODE = NodeUsage(
    read_at=0.0,
    started_at=0.0,
    cgroup=cgroup(600, 400, 450),
    memory_capacity=1000 * MIB,
    system_containers=(SystemContainerUsage(name="pods", created_at=0.0, cgroup=cgroup(300, 200, 220)),),
)


def test_page_cache_that_can_be_reclaimed_is_added_to_the_use_at_which_the_threshold_is_met() -> None:
    assert usage_thresholds(NODE, ["100Mi", "10%"], limits_pods=False) == {
        ("root", "100Mi"): 950 * MIB,
        ("root", "10%"): int(1000 * MIB - 104857601) + 50 * MIB,
    }


def test_where_the_limit_of_pods_is_enforced_the_threshold_applies_to_them_as_well() -> None:
    found = usage_thresholds(NODE, ["100Mi"], limits_pods=True)
    assert found[("pods", "100Mi")] == (500 - 100 + 20) * MIB


def test_memory_of_huge_pages_is_no_capacity_of_the_node() -> None:
    found = usage_thresholds(NODE, ["100Mi"], limits_pods=True, huge_pages=200 * MIB)
    assert found == {("root", "100Mi"): 750 * MIB, ("pods", "100Mi"): (500 - 100 + 20) * MIB}


def test_what_is_not_read_and_what_is_no_threshold_give_none() -> None:
    assert usage_thresholds(NODE, ["0%"], limits_pods=True) == {}
    unread = NodeUsage(read_at=0.0, started_at=0.0, cgroup=CgroupUsage(time=0.0))
    assert usage_thresholds(unread, ["1Gi"], limits_pods=True) == {}
