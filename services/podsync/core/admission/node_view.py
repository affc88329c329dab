"""Describes the node for admission: by the API server's Node where it is known, else as it would be registered.
Allocatable is the machine's; extended resources are the Node's (pods.md 3.1, 3.2). Pure.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from services.podsync.core.placement.device_policy import NO_PLUGINS, PluginDevices
from services.podsync.core.placement.placing import NodePlacer
from services.podsync.core.pod.gated_fields import RESIZE_PREEMPTION
from shared.model.objects import Object
from shared.podspec.resources import is_extended
from shared.version import KUBERNETES_VERSION


class MachineFacts(Struct, frozen=True, kw_only=True):
    """Has what is known of the node without an API server."""

    node_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # as at registration
    taints: tuple[Mapping[str, str], ...] = ()  # as at registration
    allocatable: Mapping[str, str] = field(default_factory=dict)  # resource -> quantity text
    kernel: tuple[int, int] = (0, 0)  # major, minor
    release: str = KUBERNETES_VERSION  # of Kubernetes, one of RELEASES
    apparmor: bool = False  # enabled on the host
    allowed_unsafe_sysctls: tuple[str, ...] = ()  # exact names, or prefixes ending in *
    limited_swap: bool = False  # containers of Burstable pods get swap in proportion to their memory request
    declares_features: bool = True  # gate NodeDeclaredFeatures
    gates_off: frozenset[str] = frozenset()  # of `gated_fields.POD_GATES`
    feature_gates: Mapping[str, bool] = field(default_factory=dict)  # with their values; one that is absent is off
    placer: NodePlacer | None = None  # None = every container runs on all CPUs and NUMA nodes


class NodeView(Struct, frozen=True, kw_only=True):
    """Has the node as it is at one moment."""

    facts: MachineFacts
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    allocatable: Mapping[str, str]  # resource -> quantity text: the machine's, and the extended resources of the Node
    supplemental_groups_policy: bool = False  # the runtime enforces policy Strict
    mount_options: bool = False  # the runtime takes options of a container's mounts
    pressures: tuple[str, ...] = ()  # condition types that are True: MemoryPressure, DiskPressure, PIDPressure
    shuts_down: bool = False  # the machine
    plugins: PluginDevices = NO_PLUGINS
    plugins_known: bool = True  # every resource of a device plugin is in `plugins`
    waits_for_plugins: bool = False  # whether the pod may wait for plugins that are not connected
    preempts: bool = True  # a critical pod for which there is no room preempts others
    preempts_for_resizes: bool = True  # the same for its resize
    waited_for_plugins: bool = False  # whether it has waited for some already, also for ones that are dropped by now


def node_view(
    node: Object | None, facts: MachineFacts, *, pressures: tuple[str, ...], supplemental_groups_policy: bool
) -> NodeView:
    """Return the view for one decision; `node` None = not known: then the view has what would be registered."""
    if node is None:
        labels, taints, disabled_by = dict(facts.labels), facts.taints, None
    else:
        policy = (node.get("spec") or {}).get("podPreemptionPolicy")
        disabled_by = policy.get("disableResizePreemption") if isinstance(policy, dict) else None
        labels = _texts((node.get("metadata") or {}).get("labels"))
        taints = tuple(t for t in (node.get("spec") or {}).get("taints") or () if isinstance(t, dict))
    return NodeView(
        facts=facts,
        labels=labels,
        taints=taints,
        allocatable={**_extended_resources(node), **facts.allocatable},
        pressures=pressures,
        supplemental_groups_policy=supplemental_groups_policy,
        preempts_for_resizes=not disabled_by or RESIZE_PREEMPTION in facts.gates_off,
    )


def node_addresses(node: Object | None) -> tuple[str, ...]:
    """Return the node's addresses for hostIPs: InternalIP before ExternalIP, at most one of each family, in the order
    of the Node (pods.md 9.4); () where it has none."""
    listed = [a for a in ((node or {}).get("status") or {}).get("addresses") or () if isinstance(a, dict)]
    for kind in ("InternalIP", "ExternalIP"):
        found: dict[bool, str] = {}
        for address in listed:
            text = str(address.get("address") or "")
            if address.get("type") == kind and text:
                found.setdefault(":" in text, text)
        if found:
            return tuple(found.values())
    return ()


def _extended_resources(node: Object | None) -> dict[str, str]:
    listed = _texts(((node or {}).get("status") or {}).get("allocatable"))
    return {name: amount for name, amount in listed.items() if is_extended(name)}


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, dict) else {}
