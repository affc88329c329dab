"""Reads what an earlier agent of the node gave to its pods, from the files of its CPU, memory and device managers.

A file that the Go kubelet would not start with is an OperatorError: this configuration or this machine would take CPUs
or memory from containers that run (node.md 4.10, 4.11).
"""

import logging
from collections.abc import Callable

from bus.messages.device_plugins import MAX_DEVICES, MAX_RESOURCES
from services.podsync.adapters.allocation_bytes import read_answer
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.cpu_state import CpuState
from services.podsync.core.checkpoints.device_takeover import devices_of
from services.podsync.core.checkpoints.memory_state import MemoryState
from services.podsync.core.checkpoints.start_checks import (
    Conflict,
    cpu_conflict,
    memory_conflict,
    start_error,
    unknown_nodes,
)
from services.podsync.core.checkpoints.start_conflicts import refuse
from services.podsync.core.checkpoints.takeover import placements_of
from services.podsync.core.placement.cpu_policy import CpuOption
from services.podsync.core.placement.placing import NodePlacer
from services.podsync.core.placement.pod_placement import PodPlacement
from shared.config.effective import EffectiveConfig
from shared.config.rules_data import truth
from shared.errors import OperatorError

log = logging.getLogger(__name__)


def read_inherited_placements(
    config: EffectiveConfig,
    placer: NodePlacer | None,
    files: PlacementFiles,
    on_conflict: Callable[[OperatorError], None] = refuse,
) -> dict[str, PodPlacement]:
    """Return the placements of the files by pod UID, whether or not this agent knows the pods. `on_conflict` is called
    for a file that the Go kubelet would not start with. Raises OperatorError also for one that cannot be read."""
    cpu, memory = compare_files(config, placer, files, on_conflict)
    state = files.read_devices()
    if state is None:
        return placements_of(cpu, memory, None)
    devices, refused = devices_of(state, read_answer)
    for line in refused:
        log.warning(
            "%s: %s, and is not taken over: it may have at most %d devices of %d resources",
            files.device_path,
            line,
            MAX_DEVICES,
            MAX_RESOURCES,
        )
    return placements_of(cpu, memory, devices)


def compare_files(
    config: EffectiveConfig,
    placer: NodePlacer | None,
    files: PlacementFiles,
    on_conflict: Callable[[OperatorError], None],
) -> tuple[CpuState | None, MemoryState | None]:
    """Return the content of the files of the CPU and memory managers, None without one. `on_conflict` is called for one
    that the Go kubelet would not start with. Raises OperatorError for one that cannot be read."""
    cpu, memory = files.read_cpu(), files.read_memory()
    if cpu is not None and (conflict := _of_cpus(cpu, config, placer)):
        on_conflict(start_error(conflict, "CPU", str(files.cpu_path)))
    if memory is not None and (conflict := _of_memory(memory, config, placer)):
        on_conflict(start_error(conflict, "memory", str(files.memory_path)))
    return cpu, memory


def _of_cpus(state: CpuState, config: EffectiveConfig, placer: NodePlacer | None) -> Conflict | None:
    reserved = placer.cpus.reserved if placer is not None else frozenset()
    all_cpus = placer.cpus.shared_pool(()) | reserved if placer is not None else frozenset()
    strict = truth(config.cpu_manager_policy_options.get(CpuOption.STRICT_CPU_RESERVATION, "false"))
    policy = config.cpu_manager_policy
    pod_level = placer is not None and placer.pod_level
    return cpu_conflict(
        state, policy=policy, all_cpus=all_cpus, reserved=reserved, strict=bool(strict), pod_level=pod_level
    )


def _of_memory(state: MemoryState, config: EffectiveConfig, placer: NodePlacer | None) -> Conflict | None:
    policy = config.memory_manager_policy
    if placer is None or policy != "Static":
        return memory_conflict(state, policy=policy, expected={})
    if state.policy == policy and (unknown := unknown_nodes(state, placer.memory.machine_memory(()))):
        return unknown
    placements = placements_of(None, state).values()
    expected = placer.memory.machine_memory(placements)
    return memory_conflict(state, policy=policy, expected=expected, pod_level=placer.pod_level)
