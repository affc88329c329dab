"""Defines the chains and rules of iptables that other components of a node may depend on (config.md 5.8). Pure.

The hint chain shows whether a node uses iptables-legacy or iptables-nft. The canaries show that the rules of a table
were flushed: nothing refers to them. The firewall rule drops packets to 127.0.0.0/8 that come from another host.
"""

from msgspec import Struct

MANGLE, NAT, FILTER = "mangle", "nat", "filter"
CANARY = "KUBE-KUBELET-CANARY"
CANARY_TABLES = (MANGLE, NAT, FILTER)
_HINT, _FIREWALL = "KUBE-IPTABLES-HINT", "KUBE-FIREWALL"
_LOCALNET = (
    *("-m", "comment", "--comment", "block incoming localnet connections"),
    *("--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8"),
    *("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"),
)


class Chain(Struct, frozen=True):
    """A chain of a table."""

    table: str
    name: str


class Rule(Struct, frozen=True):
    """A rule of a chain: the arguments of iptables that describe it. `first`: it goes before the others."""

    chain: Chain
    arguments: tuple[str, ...]
    first: bool = False


def utility_rules(*, ipv6: bool) -> tuple[Chain | Rule, ...]:
    """Return the chains and rules that must exist, in the order in which they are made."""
    hint = Chain(MANGLE, _HINT)
    if ipv6:  # its loopback network is one address, which the kernel never routes
        return (hint,)
    firewall = Chain(FILTER, _FIREWALL)
    jumps = tuple(Rule(Chain(FILTER, name), ("-j", _FIREWALL), first=True) for name in ("OUTPUT", "INPUT"))
    return hint, firewall, Rule(firewall, _LOCALNET), *jumps
