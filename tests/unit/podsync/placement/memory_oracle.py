"""An oracle of the memory manager's policy Static, written from node.md 4.11: it keeps the machine's state in place,
takes memory from one node after the other, and gives it back when a pod is removed.

It differs from the reference in one point, as the product does (`memory_policy`): a single node of a larger group
serves no request.
"""

from itertools import combinations
from typing import Any

from services.podsync.core.placement.hint import Hint

Mask = tuple[int, ...]
Json = dict[str, Any]


class RefusedError(Exception):
    """Has the message of the reference."""


class MemoryOracle:
    """Has the state that node.md 4.11 describes. `capacity`: allocatable bytes by node and kind."""

    def __init__(self, capacity: dict[int, dict[str, int]]) -> None:
        self.capacity = capacity
        self.free = {node: dict(kinds) for node, kinds in capacity.items()}
        self.assignments = dict.fromkeys(capacity, 0)
        self.cells: dict[int, Mask] = {node: (node,) for node in capacity}
        self.entries: dict[tuple[str, str], list[tuple[Mask, str, int]]] = {}  # by pod and container

    def masks(self) -> list[Mask]:
        nodes = sorted(self.capacity)
        return [mask for size in range(1, len(nodes) + 1) for mask in combinations(nodes, size)]

    def reusable(self, pod: Json, name: str, mask: Mask, kind: str) -> int:
        earlier = [self.entries.get((pod["metadata"]["uid"], init), []) for init in ended_before(pod, name)]
        return sum(size for blocks in earlier for nodes, of, size in blocks if (nodes, of) == (mask, kind))

    def hints(self, pod: Json, name: str, wanted: dict[str, int]) -> list[tuple[Mask, bool]]:
        large = [mask for mask in self.masks() if self._sums(self.capacity, mask, wanted, lambda _mask, _kind: 0)]
        smallest = min((len(mask) for mask in large), default=0)
        return [
            (mask, len(mask) == smallest)
            for mask in large
            if self._permits(mask)
            and self._sums(self.free, mask, wanted, lambda nodes, kind: self.reusable(pod, name, nodes, kind))
        ]

    def _permits(self, mask: Mask) -> bool:
        if len(mask) == 1:
            return len(self.cells[mask[0]]) == 1
        return all(self.assignments[node] == 0 or self.cells[node] == mask for node in mask)

    @staticmethod
    def _sums(amounts: dict[int, dict[str, int]], mask: Mask, wanted: dict[str, int], more: Any) -> bool:
        return all(
            sum(amounts[node].get(kind, 0) for node in mask) + more(mask, kind) >= size for kind, size in wanted.items()
        )

    def allocate(self, pod: Json, name: str, wanted: dict[str, int], affinity: Hint) -> None:
        """Raise RefusedError."""
        mask = self._chosen(pod, name, wanted, affinity)
        for kind, size in wanted.items():
            reused = min(size, self.reusable(pod, name, mask, kind))
            self._shrink(pod, name, mask, kind, reused)
            self._take(mask, kind, size - reused)
        uid = pod["metadata"]["uid"]
        self.entries[uid, name] = [(mask, kind, size) for kind, size in wanted.items()]

    def _chosen(self, pod: Json, name: str, wanted: dict[str, int], affinity: Hint) -> Mask:
        if affinity.nodes is None:
            best = best_of(self.hints(pod, name, wanted))
            if best is None:
                raise RefusedError(
                    "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
                )
            if affinity.preferred and not best[1]:
                raise RefusedError("failed to find the default preferred hint")
            return best[0]
        mask = tuple(sorted(affinity.nodes))
        enough = self._sums(self.free, mask, wanted, lambda nodes, kind: self.reusable(pod, name, nodes, kind))
        if not enough or (len(mask) == 1 and len(self.cells[mask[0]]) > 1):
            best = best_of([hint for hint in self.hints(pod, name, wanted) if set(mask) <= set(hint[0])])
            if best is None:
                raise RefusedError("failed to find NUMA nodes to extend the current topology hint")
            if affinity.preferred and not best[1]:
                raise RefusedError("failed to find the extended preferred hint")
            return best[0]
        if not self._permits(mask):
            raise RefusedError("preferred hint violates NUMA node allocation")
        return mask

    def _shrink(self, pod: Json, name: str, mask: Mask, kind: str, size: int) -> None:
        for init in ended_before(pod, name):
            blocks = self.entries.get((pod["metadata"]["uid"], init), [])
            for place, (nodes, of, held) in enumerate(blocks):
                if (nodes, of) == (mask, kind):
                    taken = min(size, held)
                    size -= taken
                    blocks[place] = (nodes, of, held - taken)

    def _take(self, mask: Mask, kind: str, size: int) -> None:
        for node in mask:
            self.assignments[node] += 1
            self.cells[node] = mask
            taken = min(size, self.free[node].get(kind, 0))
            if taken:
                self.free[node][kind] -= taken
                size -= taken
        assert not size

    def remove(self, uid: str) -> None:
        """Give back what the containers of the pod have."""
        for entry in [entry for entry in self.entries if entry[0] == uid]:
            for mask, kind, held in self.entries.pop(entry):
                size = held
                for node in mask:
                    self.assignments[node] -= 1
                    if not self.assignments[node]:
                        self.cells[node] = (node,)
                    given = min(size, self.capacity[node].get(kind, 0) - self.free[node].get(kind, 0))
                    if given:
                        self.free[node][kind] += given
                        size -= given
                assert not size

    def settle(self) -> None:
        """Take all blocks anew: a group gives from its first nodes then. The reference promises only its sums."""
        self.free = {node: dict(kinds) for node, kinds in self.capacity.items()}
        self.assignments = dict.fromkeys(self.capacity, 0)
        for blocks in self.entries.values():
            for mask, kind, size in blocks:
                self._take(mask, kind, size)


def ended_before(pod: Json, name: str) -> list[str]:
    """Return the plain init containers before this container."""
    names = [init["name"] for init in pod["spec"]["initContainers"]]
    earlier = names[: names.index(name)] if name in names else names
    plain = {init["name"] for init in pod["spec"]["initContainers"] if "restartPolicy" not in init}
    return [init for init in earlier if init in plain]


def best_of(hints: list[tuple[Mask, bool]]) -> tuple[Mask, bool] | None:
    """Return the preferred one, then the narrowest, then the one with the lower bit mask."""
    return min(hints, key=lambda hint: (not hint[1], len(hint[0]), sum(2**node for node in hint[0])), default=None)
