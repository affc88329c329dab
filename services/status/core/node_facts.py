"""Defines the facts of this node that its Node object contains, as plain data.

It does not depend on how a fact is read. None = not known (yet): the Node then keeps its value.
"""

from msgspec import Struct, field

from bus.messages.bootstrap import NodeConfigStatus
from bus.messages.pleg import NodeImage, NodeObserved
from bus.messages.podsync import NodeResources
from services.status.core.node_conditions import Condition
from shared.version import release_tag


def kubelet_version(own: str, release: str) -> str:
    """Return the `kubeletVersion` of version `own` of this agent, such as `v1.36.0+bulkhead.0.1.0`; `release` is the
    major.minor version of Kubernetes that it emulates."""
    # Clients parse kubeletVersion as a semantic version and compare it with the API server's: it is the Kubernetes
    # release whose behaviour we keep. Our own version is build metadata, which compares equal; what follows a dash
    # would be a pre-release, older than v1.36.0.
    kept = "".join(char if char.isascii() and (char.isalnum() or char in ".-") else "-" for char in own)
    return f"{release_tag(release)}+bulkhead.{kept.strip('.-') or '0'}"


class MachineFacts(Struct, frozen=True, kw_only=True):
    """The facts that do not change while the process runs (node.md 1.6, nodeInfo sources)."""

    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    os_image: str = "Linux"
    architecture: str = "amd64"  # as Go names it
    swap_capacity: int = 0  # bytes


class HostNetwork(Struct, frozen=True, kw_only=True):
    """The host's addresses as text. `resolved`: what the node's name resolves to, in the resolver's order;
    `default_routes`: the addresses that the default routes use, at most one of each family."""

    assigned: frozenset[str] = frozenset()
    resolved: tuple[str, ...] = ()
    default_routes: tuple[str, ...] = ()

    def has_same_addresses(self, other: "HostNetwork") -> bool:
        """Return whether the addresses are the same; a resolver may give those of a name in another order each time."""
        mine, theirs = ((one.assigned, set(one.resolved), one.default_routes) for one in (self, other))
        return mine == theirs


class NodeIdentity(Struct, frozen=True, kw_only=True):
    """The configured facts of the node; they do not change while the process runs."""

    name: str
    kubelet_version: str
    port: int = 10250
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    provider_id: str = ""
    node_ips: tuple[str, ...] = ()
    external_cloud_provider: bool = False
    controller_attach_detach: bool = True
    max_images: int = 50  # -1 = all
    declared_features: tuple[str, ...] | None = None  # sorted; None = the Node keeps its value
    bind_mount_options: bool = False  # gate VolumeBindMountOptions: declared where the runtime supports it


class NodeFacts(Struct, frozen=True, kw_only=True):
    """The facts that the setters of `node_status` write."""

    identity: NodeIdentity
    machine: MachineFacts
    now: str  # RFC3339
    network: HostNetwork | None = None
    resources: NodeResources | None = None
    observed: NodeObserved | None = None
    images: tuple[NodeImage, ...] | None = None
    conditions: tuple[Condition, ...] = ()
    devices: frozenset[str] = frozenset()  # resources that the device plugin checkpoint names
    # No agent of this machine has known devices or written the Node: its extended resources are of an earlier machine.
    recreated: bool = False
    volumes_in_use: tuple[str, ...] | None = None  # None = not known: the Node keeps its value
    config: NodeConfigStatus | None = None  # None = not known, or not used: the Node keeps its value
    given: dict[str, tuple[str, ...]] = field(default_factory=dict)  # foreign resource -> allocatable set by this agent
