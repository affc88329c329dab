"""Makes the placement of containers on CPUs and NUMA nodes from the configuration and the machine (node.md 4.10-4.12).

The machine is read once: CPUs that come or go while the process runs count from its next start. A change that the
policies do not go together with ends no restart of this process, only the next start of the agent.
"""

from collections.abc import Callable
from pathlib import Path

from bus.messages.podsync import NodeResources
from services.podsync.adapters.timed_placer import TimedPlacer
from services.podsync.core.checkpoints.start_conflicts import refuse
from services.podsync.core.placement import cpu_policy, memory_accounting
from services.podsync.core.placement.cpu_policy import CpuOption, CpuSettings
from services.podsync.core.placement.memory_accounting import MEMORY, MemorySettings
from services.podsync.core.placement.merging import DEFAULT_MAX_NODES, TopologyPolicy
from services.podsync.core.placement.placing import (
    NodePlacer,
    PlacementSettings,
    TopologyScope,
    TopologySettings,
    node_count_error,
)
from services.podsync.core.pod.published_items import numa_memory
from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled
from shared.config.rules_data import truth
from shared.config.rules_placement import numa_limit
from shared.errors import OperatorError
from shared.host.machine import meminfo
from shared.host.machine_topology import read_machine_topology
from shared.model.cpu_list import parse_cpus, write_cpus
from shared.model.eviction import threshold_amount
from shared.model.frozen_copy import replace
from shared.model.machine_topology import MachineTopology
from shared.model.quantity import ZERO, Quantity, parse_quantity
from shared.podspec.resources import parse_resources

_PREFER_CLOSEST, _MAX_NODES = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"


def read_node_placer(
    config: EffectiveConfig, root: Path = Path("/"), on_conflict: Callable[[OperatorError], None] = refuse
) -> TimedPlacer | None:
    """Return the placer of this machine, below `root`; None where no policy is static and nothing is aligned: pods get
    nothing but devices then, and `device_placer` gives them without reading the machine.
    `on_conflict` is called where the policies and the machine do not go together. Raises OperatorError also where the
    machine cannot be read."""
    settings = placement_settings(config)
    aligns = settings.topology.policy is not TopologyPolicy.NONE
    if not settings.cpu.static and not settings.memory.static and not aligns:
        return None
    topology = read_machine_topology(root)
    withheld = withheld_memory(config, meminfo(root / "proc").get("MemTotal", 0))
    if conflict := settings_conflict(topology, settings, withheld):
        on_conflict(conflict)
    return TimedPlacer(topology, settings)


def device_placer() -> TimedPlacer:
    """Return a placer that gives devices without aligning them, and gives no pod CPUs or memory of its own."""
    return TimedPlacer(MachineTopology(), PlacementSettings())


def with_placement(resources: NodeResources, placer: NodePlacer) -> NodeResources:
    """Return the resources with the CPUs and the memory that containers can get alone."""
    return replace(
        resources,
        exclusive_cpus=write_cpus(placer.cpus.allocatable),
        shared_cpus=write_cpus(placer.shared_pool(())) if placer.static_cpus else "",
        memory=numa_memory(placer.memory.allocatable),
    )


def placement_settings(config: EffectiveConfig) -> PlacementSettings:
    """Return the settings of the three policies, which the rules of the configuration have checked."""
    options = config.cpu_manager_policy_options
    topology_options = config.topology_manager_policy_options
    reserved = _reserved(config, "cpu")
    return PlacementSettings(
        cpu=CpuSettings(
            static=config.cpu_manager_policy == "static",
            options=frozenset(option for option in CpuOption if truth(options.get(option, "false"))),
            reserved_cpus=parse_cpus(config.reserved_system_cpus) or frozenset(),
            reserved_count=-(-reserved.milli() // 1000),
        ),
        memory=MemorySettings(
            static=config.memory_manager_policy == "Static",
            reserved={
                int(entry.get("numaNode") or 0): {
                    kind: parse_quantity(amount).base() for kind, amount in (entry.get("limits") or {}).items()
                }
                for entry in config.reserved_memory
            },
        ),
        topology=TopologySettings(
            policy=TopologyPolicy(config.topology_manager_policy),
            scope=TopologyScope(config.topology_manager_scope),
            prefer_closest=bool(truth(topology_options.get(_PREFER_CLOSEST, "false"))),
            max_nodes=numa_limit(topology_options.get(_MAX_NODES, "")) or DEFAULT_MAX_NODES,
        ),
        pod_level=enabled(config.feature_gates, "PodLevelResourceManagers"),
    )


def withheld_memory(config: EffectiveConfig, total: int) -> dict[str, int]:
    """Return the bytes by kind of memory that pods do not get: reserved, or kept free by eviction. `total`: the
    machine's bytes of memory."""
    threshold = config.eviction_hard.get("memory.available")
    return {MEMORY: _reserved(config, "memory").base() + (threshold_amount(threshold, total) if threshold else 0)}


def settings_conflict(
    topology: MachineTopology, settings: PlacementSettings, withheld: dict[str, int]
) -> OperatorError | None:
    """Return why the policies cannot be used on this machine, None where they can."""
    for key, why in (
        ("cpuManagerPolicy", cpu_policy.settings_error(topology, settings.cpu)),
        ("memoryManagerPolicy", memory_accounting.settings_error(topology, settings.memory, withheld)),
        ("topologyManagerPolicy", node_count_error(topology, settings)),
    ):
        if why:
            return OperatorError(why, where=key, remedy="change it or the reserved amounts, or set the policy to none")
    return None


def _reserved(config: EffectiveConfig, resource: str) -> Quantity:
    amounts = [parse_resources(listed).get(resource, ZERO) for listed in (config.system_reserved, config.kube_reserved)]
    return amounts[0] + amounts[1]
