"""Has what the topology manager asks its providers for: the NUMA nodes that could serve a request (node.md 4.12)."""

from collections.abc import Iterable, Mapping
from itertools import combinations

from msgspec import Struct

NodeSet = frozenset[int]  # ids of NUMA nodes


def node_sets(nodes: Iterable[int]) -> list[NodeSet]:
    """Return all sets of these nodes but the empty one, small ones first."""
    order = sorted(nodes)
    return [frozenset(some) for size in range(1, len(order) + 1) for some in combinations(order, size)]


def bit_mask(nodes: NodeSet) -> int:
    """Return the set as the Go kubelet compares it with others of its size: the lower mask is taken first."""
    return sum(1 << node for node in nodes)


class Hint(Struct, frozen=True):
    """Has NUMA nodes from which a request can be served. `nodes` None: any nodes serve it equally well."""

    nodes: NodeSet | None
    preferred: bool


ANY_NODE = Hint(None, True)
# A provider's hints by resource. An empty mapping: the provider has no preference at all. The value None: none for
# this resource. An empty tuple: no set of nodes can serve the request.
Hints = Mapping[str, tuple[Hint, ...] | None]


class PlacementError(Exception):
    """Says why a request cannot be served. `reason`: of the rejection, such as SMTAlignmentError. `detail`: what
    the message, which is the Go kubelet's, does not say; "" = nothing."""

    def __init__(self, message: str, reason: str = "UnexpectedAdmissionError", detail: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.detail = detail
