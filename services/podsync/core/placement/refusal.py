"""Says why the topology manager refuses a pod, and what would have fitted: one line from the hints of all providers."""

from collections.abc import Iterable, Sequence

from services.podsync.core.placement.hint import Hint, Hints, NodeSet, bit_mask
from services.podsync.core.placement.merging import TopologyPolicy
from shared.model.cpu_list import write_cpus

MAX_SETS = 4  # of NUMA nodes that are named for a resource
_DEMANDS = {
    TopologyPolicy.SINGLE_NUMA_NODE: "demands one NUMA node for all resources",
    TopologyPolicy.RESTRICTED: "demands the same NUMA nodes for all resources, and as few as on a free machine",
}


def describe_refusal(policy: TopologyPolicy, name: str, provider_hints: Sequence[Hints]) -> str:
    """Return what the policy demands and on which NUMA nodes each resource fits. `name`: of the container; "" = all
    containers of the pod together."""
    who = f"container {name}" if name else "the pod"
    fits = [
        _describe(resource, hints)
        for provider in provider_hints
        for resource, hints in provider.items()
        if hints is not None
    ]
    return f"topologyManagerPolicy {policy} {_DEMANDS.get(policy, '')}; for {who}, {' and '.join(fits)}"


def _describe(resource: str, hints: Sequence[Hint]) -> str:
    if preferred := _sets(hint for hint in hints if hint.preferred):
        return f"{resource} fits on {_write(preferred)}"
    if possible := _sets(hints):
        smallest = [nodes for nodes in possible if len(nodes) == len(possible[0])]
        return f"{resource} fits only on {_write(smallest)} (on a free machine on fewer)"
    return f"{resource} fits on no NUMA nodes"


def _sets(hints: Iterable[Hint]) -> list[NodeSet]:
    found = {hint.nodes for hint in hints if hint.nodes is not None}
    return sorted(found, key=lambda nodes: (len(nodes), bit_mask(nodes)))


def _write(sets: Sequence[NodeSet]) -> str:
    """Return the sets as text, such as `NUMA nodes 0-1 or 2-3`."""
    texts = [write_cpus(nodes) for nodes in sets[:MAX_SETS]]
    more = " or others" if len(sets) > MAX_SETS else ""
    one = len(sets) == 1 and len(sets[0]) == 1
    return f"NUMA {'node' if one else 'nodes'} {' or '.join(texts)}{more}"
