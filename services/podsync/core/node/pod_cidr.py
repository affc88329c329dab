"""Reads which addresses for pods the control plane has given to a Node (node.md 1.5). Pure."""

from shared.model.objects import Object


def pod_cidrs(node: Object) -> str:
    """Return the Node's `spec.podCIDRs`, separated by commas; "" = it has none. API servers before 1.16 have
    `spec.podCIDR` alone."""
    spec = node.get("spec") or {}
    several = [cidr for cidr in spec.get("podCIDRs") or () if isinstance(cidr, str) and cidr]
    one = spec.get("podCIDR")
    return ",".join(several) or (one if isinstance(one, str) else "")
