"""What node.md 4.15 says about hints and about the choice of devices, by trying everything; for a few devices only."""

from collections.abc import Sequence
from itertools import combinations

from bus.messages.device_plugins import Device

Ids = frozenset[str]


def hints(
    machine: Sequence[int], devices: Sequence[Device], available: Ids, reusable: Ids, count: int
) -> set[tuple[frozenset[int], bool]] | None:
    """Return the masks for which a choice of devices exists that takes all reusable ones into account, and whether each
    is as small as one that could serve the request on an idle machine. None: no device names a NUMA node."""
    if not any(device.nodes for device in devices):
        return None
    if len(available | reusable) < count:
        return set()
    near = {device.id: set(device.nodes) for device in devices}
    masks = [frozenset(some) for size in range(1, len(machine) + 1) for some in combinations(machine, size)]
    idle = [mask for mask in masks if sum(bool(nodes & mask) for nodes in near.values()) >= count]
    smallest = min([len(machine), *map(len, idle)])
    found = set()
    for mask in masks:
        placed = {each for each in reusable if near.get(each)}
        if any(not near[each] & mask for each in placed):
            continue
        if len(placed) + sum(bool(near[each] & mask) for each in available) >= count:
            found.add((mask, len(mask) == smallest))
    return found


def rank(
    choice: Ids, devices: Sequence[Device], reusable: Ids, affinity: frozenset[int] | None, preferred: Ids
) -> tuple[int, ...]:
    """Return how good a choice is, larger is better: reusable devices first, then those near the affinity, then
    preferred ones, then among the rest those near any NUMA node. Without an affinity NUMA nodes do not count."""
    near = {device.id: set(device.nodes) for device in devices}
    new = choice - reusable
    aligned = {each for each in new if affinity is not None and near[each] & affinity}
    placed = {each for each in new - preferred if affinity is not None and near[each]}
    return len(choice & reusable), len(aligned), len(new & preferred), len(placed)


def best_rank(
    devices: Sequence[Device],
    available: Ids,
    reusable: Ids,
    affinity: frozenset[int] | None,
    preferred: Ids,
    count: int,
) -> tuple[int, ...]:
    """Return the rank of the best of all possible choices."""
    choices = combinations(sorted(available | reusable), count)
    return max(rank(frozenset(each), devices, reusable, affinity, preferred) for each in choices)
