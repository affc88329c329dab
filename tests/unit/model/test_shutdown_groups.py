"""The groups of a node's configuration, and which one a pod belongs to (node.md 3 "Groups", "Kill sequence")."""

import pytest

from shared.model.shutdown_groups import Group, configured_groups, index_of_group, total_seconds


def by_priority(**entries: int) -> list[dict[str, int]]:
    return [{"priority": int(name[1:]), "shutdownGracePeriodSeconds": seconds} for name, seconds in entries.items()]


@pytest.mark.parametrize(
    ("total", "critical", "listed", "groups"),
    [
        (0.0, 0.0, [], []),
        (30.0, 10.0, [], [(0, 20.0), (2_000_000_000, 10.0)]),
        (30.0, 0.0, [], [(0, 30.0), (2_000_000_000, 0.0)]),
        (30.0, 30.0, [], [(0, 0.0), (2_000_000_000, 30.0)]),
        (0.0, 0.0, by_priority(p1000=5, p0=7, p100=0), [(0, 7.0), (100, 0.0), (1000, 5.0)]),
        (0.0, 0.0, by_priority(p1000=0, p0=0), []),
    ],
)
def test_the_groups_follow_from_the_configuration(
    total: float, critical: float, listed: list[dict[str, int]], groups: list[tuple[int, float]]
) -> None:
    found = configured_groups(total, critical, listed)
    assert [(group.priority, group.seconds) for group in found] == groups
    assert total_seconds(found) == sum(seconds for _, seconds in groups)


@pytest.mark.parametrize(
    ("priority", "index"),
    [(-5, 0), (9, 0), (10, 0), (99, 0), (100, 1), (999, 1), (1000, 2), (2_000_001_000, 2)],
)
def test_a_pod_belongs_to_the_last_group_that_is_not_above_it(priority: int, index: int) -> None:
    groups = tuple(Group(priority=lowest, seconds=1.0) for lowest in (10, 100, 1000))
    assert index_of_group(priority, groups) == index
