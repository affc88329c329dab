"""Carries out the resize of a pod: reads its cgroup, then writes cgroup and containers in the order of the core.
Memory-backed volumes shrink before that, and grow after it. Before the writes, containers lose a throttle that their
new resources do not have. A repeated call writes the same values again, so a kill of podsync between two writes leaves
nothing to undo.
"""

from services.podsync.adapters.calls.pod_operations import PodOperations, PodView
from services.podsync.adapters.cgroups.left_throttles import take_throttle_back
from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.core.cri.container_resources import sandbox_overhead, sandbox_resources
from services.podsync.core.cri.resize_writes import (
    WriteCgroup,
    memory_decreases,
    refuse_memory_in_use,
    resize_writes,
)
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.pod.instructions import ResizePod
from shared.cri.interface import RuntimeCallError
from shared.process.crash import crash_point


async def resize_pod(operations: PodOperations, cgroups: PodCgroups, call: ResizePod, view: PodView) -> None:
    """Write the new resources of the pod. Raises MemoryInUseError before the first write; OSError, RuntimeCallError."""
    await cgroups.driver()
    facts = operations.facts_with_placement(view)
    current = await cgroups.values_of(view.pod)
    decreases = memory_decreases(view.pod, call.containers, current, facts)
    usages = [await cgroups.memory_usage(view.pod, decrease.container_id) for decrease in decreases]
    refuse_memory_in_use(zip(decreases, usages, strict=True))
    if facts.resizes_memory_volumes:
        await operations.volumes.resize(view.uid, view.pod, grow=False)
    for update in call.containers:
        container, container_id = update.container, update.container_id
        await take_throttle_back(operations.runtime, cgroups, view.pod, container, container_id, update.given)
        crash_point("podsync.resize.unthrottled")
    for write in resize_writes(view.pod, call.containers, current, facts):
        if isinstance(write, WriteCgroup):
            await _announce(operations, call, view, facts)
            await cgroups.write_pod(view.pod, write.values)
        else:
            await operations.runtime.update_container_resources(write.container_id, write.resources)
        crash_point("podsync.resize.written")
    if facts.resizes_memory_volumes:
        await operations.volumes.resize(view.uid, view.pod, grow=True)
    try:
        await cgroups.write_classes(operations.node.active_pods)
    except OSError:
        return  # the QoS cgroups are written again within a minute, and a failure is reported then


async def _announce(operations: PodOperations, call: ResizePod, view: PodView, facts: NodeFacts) -> None:
    """Send the sandbox's new resources to the runtime; a runtime without that request does not need them."""
    if not call.sandbox_id:
        return
    resources, overhead = sandbox_resources(view.pod, facts), sandbox_overhead(view.pod, facts)
    try:
        await operations.runtime.update_pod_sandbox_resources(call.sandbox_id, resources, overhead)
    except RuntimeCallError as error:
        unknown = error.code == "Unknown" and "not implemented" in error.description
        if error.code != "Unimplemented" and not unknown:
            raise
