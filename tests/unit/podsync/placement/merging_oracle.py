"""An oracle of the topology manager's merge, written from node.md 4.12: it looks at every combination, one after
another, and keeps the better one by the rules in their order there."""

from collections.abc import Sequence
from itertools import product

from services.podsync.core.placement.hint import Hint, Hints

Nodes = tuple[int, ...]
Distances = dict[int, dict[int, int]]


def expected_merge(
    policy: str, nodes: Nodes, distances: Distances, providers: Sequence[Hints], *, closest: bool
) -> tuple[Hint, bool]:
    """Return what node.md 4.12 chooses and whether it admits that, for the policies that ask for hints."""
    single = policy == "single-numa-node"
    lists = [list(hints) for provider in providers for hints in answers(provider)]
    if single:
        lists = [
            [hint for hint in hints if hint.preferred and (hint.nodes is None or len(hint.nodes) == 1)]
            for hints in lists
        ]
    sizes = [[len(hint.nodes) for hint in hints if hint.nodes is not None] for hints in lists]
    wanted = max((min(size) for size in sizes if size), default=0)
    best: Hint | None = None
    for combination in product(*lists):
        masks = [hint.nodes for hint in combination if hint.nodes is not None]
        common = frozenset(nodes).intersection(*masks)
        if not common:
            continue
        candidate = Hint(common, all(hint.preferred for hint in combination) and len(set(masks)) <= 1)
        best = (
            candidate
            if best is None
            else better(best, candidate, wanted, distances if closest and not single else None)
        )
    if best is None:
        best = Hint(frozenset(nodes), False)
    admitted = policy == "best-effort" or best.preferred
    return (Hint(None, best.preferred) if single and best.nodes == frozenset(nodes) else best), admitted


def answers(provider: Hints) -> list[tuple[Hint, ...]]:
    if not provider:
        return [(Hint(None, True),)]
    return [(Hint(None, True),) if hints is None else hints or (Hint(None, False),) for hints in provider.values()]


def better(current: Hint, candidate: Hint, wanted: int, distances: Distances | None) -> Hint:
    if current.preferred != candidate.preferred:
        return current if current.preferred else candidate
    assert current.nodes is not None
    assert candidate.nodes is not None
    now, new = len(current.nodes), len(candidate.nodes)
    if current.preferred or now > wanted:
        return narrower_or_closer(current, candidate, distances)
    if now == wanted:
        return narrower_or_closer(current, candidate, distances) if new == wanted else current
    if new > wanted:
        return current
    if new == wanted or new > now:
        return candidate
    return current if new < now else narrower_or_closer(current, candidate, distances)


def narrower_or_closer(current: Hint, candidate: Hint, distances: Distances | None) -> Hint:
    assert current.nodes is not None
    assert candidate.nodes is not None
    if len(current.nodes) != len(candidate.nodes):
        return min(current, candidate, key=lambda hint: len(hint.nodes or ()))
    if distances is not None:
        averages = [average_distance(hint.nodes or frozenset(), distances) for hint in (current, candidate)]
        if averages[0] != averages[1]:
            return current if averages[0] < averages[1] else candidate
    return min(current, candidate, key=lambda hint: sum(2**node for node in hint.nodes or ()))


def average_distance(nodes: frozenset[int], distances: Distances) -> float:
    pairs = [distances[one][other] for one in nodes for other in nodes]
    return sum(pairs) / len(pairs)
