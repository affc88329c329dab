"""Merges the hints of all providers into one, and decides whether the topology manager's policy admits it
(node.md 4.12).

The reference tries every combination of one hint per resource: (2^nodes)^resources steps. Of a combination only two
facts matter here: whether it is preferred, for which all its sets of nodes must be equal, and which nodes its sets have
in common. Both are found without the combinations, in nodes * 2^nodes steps per resource; `node_limit_error` bounds
the nodes.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from services.podsync.core.placement.hint import ANY_NODE, Hint, Hints, NodeSet, bit_mask
from shared.model.machine_topology import MachineTopology

DEFAULT_MAX_NODES = 8  # NUMA nodes, without max-allowable-numa-nodes
MAX_NODES = 16  # NUMA nodes, whatever max-allowable-numa-nodes says: each provider names up to 2^nodes sets of nodes
LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20  # between nodes whose distance is not known, as Linux assumes them


class TopologyPolicy(StrEnum):
    """Has the policies as topologyManagerPolicy names them."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


NO_AFFINITY = Hint(None, False)  # the choice of policy none: any nodes, and no alignment is promised
_IMPOSSIBLE = Hint(None, False)  # the one hint of a resource that no set of nodes can serve

_ResourceHints = tuple[Hint, ...]
_Distances = Mapping[int, Mapping[int, int]]


def node_limit_error(policy: TopologyPolicy, topology: MachineTopology, max_allowable: int = DEFAULT_MAX_NODES) -> str:
    """Return why the policy cannot run on this machine, or "" when it can."""
    limit = min(max_allowable, MAX_NODES)
    if policy is TopologyPolicy.NONE or len(topology.nodes) <= limit:
        return ""
    return f"unsupported on machines with more than {limit} NUMA Nodes"


def merge(
    policy: TopologyPolicy,
    topology: MachineTopology,
    provider_hints: Sequence[Hints],
    *,
    prefer_closest: bool = False,
) -> tuple[Hint, bool]:
    """Return the best hint that the hints of all providers permit, and whether the policy admits it. Its `nodes` are
    None where single-numa-node restricts nothing, and for the policy none. Each provider's hints name only nodes of
    the topology. `prefer_closest`: the option prefer-closest-numa-nodes.
    """
    if policy is TopologyPolicy.NONE:
        return NO_AFFINITY, True
    single = policy is TopologyPolicy.SINGLE_NUMA_NODE
    resources = [hints for provider in provider_hints for hints in _hints_by_resource(provider)]
    if single:
        resources = [tuple(hint for hint in hints if _is_on_one_node(hint)) for hints in resources]
    distances = None
    if prefer_closest and not single:
        distances = {name: node.distances for name, node in topology.nodes.items()}
    best = _best_hint(frozenset(topology.nodes), resources, distances)
    if single and best.nodes == frozenset(topology.nodes):
        best = Hint(None, best.preferred)
    return best, best.preferred or policy is TopologyPolicy.BEST_EFFORT


def _hints_by_resource(provider: Hints) -> list[_ResourceHints]:
    if not provider:
        return [(ANY_NODE,)]
    return [(ANY_NODE,) if hints is None else hints or (_IMPOSSIBLE,) for hints in provider.values()]


def _is_on_one_node(hint: Hint) -> bool:
    return hint.preferred and (hint.nodes is None or len(hint.nodes) == 1)


def _best_hint(every: NodeSet, resources: Sequence[_ResourceHints], distances: _Distances | None) -> Hint:
    preferred = _preferred_sets(every, resources)
    if preferred:
        return Hint(min(preferred, key=lambda nodes: _extent(nodes, distances)), True)
    wanted = max((_smallest_size(hints) for hints in resources), default=0)
    others = _common_sets(every, resources)
    if not others:
        return Hint(every, False)
    return Hint(min(others, key=lambda nodes: (_misfit(len(nodes), wanted), _extent(nodes, distances))), False)


def _extent(nodes: NodeSet, distances: _Distances | None) -> tuple[int, int, int]:
    """Return what sorts sets of nodes: the smaller first, then the closer where distances are given, then the one with
    the lower bit mask. Sums of distances compare sets of one size as their averages do."""
    far = 0 if distances is None else sum(_distance(distances, one, other) for one in nodes for other in nodes)
    return len(nodes), far, bit_mask(nodes)


def _distance(distances: _Distances, one: int, other: int) -> int:
    return distances[one].get(other, LOCAL_DISTANCE if one == other else REMOTE_DISTANCE)


def _misfit(size: int, wanted: int) -> tuple[bool, int]:
    """Return what sorts the sizes of sets without a preferred hint: `wanted`, then smaller ones from the largest down,
    then larger ones from the smallest up."""
    return size > wanted, abs(size - wanted)


def _smallest_size(hints: _ResourceHints) -> int:
    return min((len(hint.nodes) for hint in hints if hint.nodes is not None), default=0)


def _preferred_sets(every: NodeSet, resources: Sequence[_ResourceHints]) -> set[NodeSet]:
    """Return the sets of nodes that every resource prefers; one that prefers any nodes agrees to each set."""
    named = [{hint.nodes for hint in hints if hint.preferred} for hints in resources]
    candidates = {nodes for sets in named for nodes in sets if nodes is not None} | {every}
    agreed = (nodes for nodes in candidates if all(nodes in sets or None in sets for sets in named))
    return {nodes & every for nodes in agreed if nodes & every}


def _common_sets(every: NodeSet, resources: Sequence[_ResourceHints]) -> list[NodeSet]:
    """Return each set of nodes, except the empty one, that some combination of one hint per resource has in common.

    For a set, the number of combinations whose hints all contain it is the product of what each resource counts; the
    number of those that have exactly this set in common follows by inclusion and exclusion.
    """
    order = sorted(every)
    bit = {node: 1 << place for place, node in enumerate(order)}
    combinations = [1] * (1 << len(order))
    for hints in resources:
        containing = [0] * len(combinations)
        for hint in hints:
            containing[sum(bit[node] for node in (every if hint.nodes is None else hint.nodes & every))] += 1
        _add_supersets(containing, len(order), 1)
        combinations = [before * count for before, count in zip(combinations, containing, strict=True)]
    _add_supersets(combinations, len(order), -1)
    return [
        frozenset(node for node in order if mask & bit[node])
        for mask, count in enumerate(combinations)
        if mask and count
    ]


def _add_supersets(counts: list[int], nodes: int, sign: int) -> None:
    """Add to the count of each bit mask those of its supersets; with the sign -1, undo this."""
    for place in range(nodes):
        step = 1 << place
        for mask in range(len(counts)):
            if not mask & step:
                counts[mask] += sign * counts[mask | step]
