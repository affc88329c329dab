"""Has the groups in which pods stop when the machine shuts down, from the configuration (node.md 3). Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from msgspec import Struct

# For which a shutdown waits after the pods, until the API server has their statuses.
MAX_STATUS_SECONDS = 5.0
CRITICAL_PRIORITY = 2_000_000_000  # the lowest priority of critical pods


class Group(Struct, frozen=True, kw_only=True):
    """Has the pods from this priority up to that of the next group."""

    priority: int
    seconds: float  # that the pods of the group get together


Groups = tuple[Group, ...]  # in ascending order of their priorities


def configured_groups(total: float, critical: float, by_priority: Iterable[Mapping[str, int]]) -> Groups:
    """Return the groups of a node; () = pods get no time, so that a shutdown is not followed. `total`:
    shutdownGracePeriod, `critical`: shutdownGracePeriodCriticalPods, both in seconds; `by_priority`: the entries of
    shutdownGracePeriodByPodPriority, which count in place of both where there are some."""
    groups = [
        Group(
            priority=int(entry.get("priority", 0)), seconds=max(0.0, float(entry.get("shutdownGracePeriodSeconds", 0)))
        )
        for entry in by_priority
    ]
    if not groups:
        groups = [
            Group(priority=0, seconds=max(0.0, total - critical)),
            Group(priority=CRITICAL_PRIORITY, seconds=max(0.0, critical)),
        ]
    in_order = tuple(sorted(groups, key=lambda group: group.priority))
    return in_order if total_seconds(in_order) > 0 else ()


def total_seconds(groups: Groups) -> float:
    """Return how long the shutdown of the machine waits at most."""
    return sum(group.seconds for group in groups)


def index_of_group(priority: int, groups: Groups) -> int:
    """Return the index of the group of pods with this priority: the last one whose priority is not higher. Pods below
    all groups belong to the first one."""
    return max(0, bisect_right([group.priority for group in groups], priority) - 1)
